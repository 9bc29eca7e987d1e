"""The store follows its runs and reads nothing twice."""

import numpy as np
import pytest

from dreamerv3.viewing import store as stores
from dreamerv3.viewing.store import SCORE, Axis, Store

ALL = Axis("step", np.nan, np.nan, 100)


def read(store):
    store.read_all()
    return store.all()


def curve(store, data, key=SCORE):
    return data.curve(key, store.limits([data], key, ALL))


def test_scores_are_taken_once(make_run):
    run = make_run()
    run.add_episodes(5)
    store = Store([str(run.path)])
    (data,) = read(store)
    found = curve(store, data)
    assert found.x.tolist() == [100, 200, 300, 400, 500]
    np.testing.assert_allclose(found.mean, [0, 0.1, 0.2, 0.3, 0.4])
    assert data.names() == [SCORE, "episode/length", "train/loss/total"]
    assert data.count() == 15
    assert data.step() == 500


def test_without_a_score_file_scores_come_from_the_metrics(make_run):
    run = make_run()
    run.add_episodes(5)
    (run.path / "scores.jsonl").unlink()
    store = Store([str(run.path)])
    (data,) = read(store)
    assert len(curve(store, data).x) == 5


def test_new_rows_and_new_runs_are_seen(make_run, tmp_path):
    run = make_run("a")
    run.add_episodes(3)
    store = Store([str(tmp_path / "logdir")])
    read(store)
    version = store.version
    run.add(9000, 1.8e9, episode__score=7.0)
    (data,) = read(store)
    assert store.version > version
    assert curve(store, data).mean[-1] == 7
    make_run("b").add_episodes(2)
    store._scan(strict=False)
    assert [data.run.name for data in read(store)] == ["a", "b"]


def test_rows_that_a_restarted_logger_took_back(make_run):
    run = make_run()
    run.add_episodes(5)
    store = Store([str(run.path)])
    read(store)
    for name in ("metrics.jsonl", "scores.jsonl"):
        path = run.path / name
        rows = path.read_text().splitlines(keepends=True)
        path.write_text("".join(rows[:2]))
    run.add(150, 1.8e9, episode__score=-1.0)
    (data,) = read(store)
    found = curve(store, data)
    assert found.mean.tolist()[-1] in (-1.0, np.float32(0.1))
    assert sorted(np.round(found.mean, 3)) == [-1, 0, 0.1]
    assert data.count() == 3 + 2  # Scores, one length and one loss.


def test_kept_columns_are_used_by_the_next_start(make_run, tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "WORTH", 1)
    run = make_run()
    run.add_episodes(200)
    first = Store([str(run.path)], tmp_path / "cache")
    first.read_all()
    assert len(list((tmp_path / "cache").glob("*.columns"))) == 1
    run.add(99_999, 1.8e9, episode__score=5.0)
    second = Store([str(run.path)], tmp_path / "cache")
    (data,) = second.all()
    assert data.position() > 0
    reads = []
    original = stores.Tail.read

    def count(tail, limit):
        lines = original(tail, limit)
        reads.extend(lines)
        return lines

    monkeypatch.setattr(stores.Tail, "read", count)
    second.read_all()
    assert len(reads) == 2  # The new row in both files.
    assert data.step() == 99_999
    assert data.count() == 601


def test_a_cache_that_cannot_be_written(make_run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(stores, "WORTH", 1)
    (tmp_path / "cache").touch()
    run = make_run()
    run.add_episodes(3)
    store = Store([str(run.path)], tmp_path / "cache")
    (data,) = read(store)
    assert data.count() == 9
    assert "Not kept" in capsys.readouterr().out


@pytest.mark.parametrize("pieces", [1, 7, 1000])
def test_in_turns_of_any_size(make_run, monkeypatch, pieces):
    monkeypatch.setattr(stores, "SLICE", pieces)
    run = make_run()
    run.add_episodes(20)
    store = Store([str(run.path)])
    (data,) = read(store)
    assert data.count() == 60


def test_limits_span_all_runs(make_run, tmp_path):
    make_run("a").add_episodes(3)
    make_run("b").add_episodes(9)
    make_run("empty")
    store = Store([str(tmp_path / "logdir")])
    found = store.limits(read(store), SCORE, ALL)
    assert (found.low, found.high) == (100, 900)
    zoomed = store.limits(store.all(), SCORE, ALL._replace(low=200.0))
    assert (zoomed.low, zoomed.high) == (200, 900)
    assert store.limits(store.all(), "missing", ALL).high == 1


def test_the_thread_reads_everything(make_run):
    run = make_run()
    run.add_episodes(4)
    store = Store([str(run.path)])
    store.start()
    assert store.ready.wait(60)
    (data,) = store.all()
    assert data.count() == 12
    assert store.progress() == 1
    store.close()
