"""Runs are found, described and their other files listed."""

import os
import socket

import pytest

from dreamerv3.settings import logdir
from dreamerv3.viewing import runs


def test_found_below_directories_and_by_patterns(make_run, tmp_path):
    make_run("pong/seed0", task="atari_pong", seed=0)
    make_run("pong/seed1", task="atari_pong", seed=1)
    other = make_run("other", task="dummy_disc", method="mine")
    (other.path / "replay").mkdir()
    (other.path / "replay" / "config.yaml").touch()  # Not a run: inside of one.
    root = tmp_path / "logdir"
    found = runs.find([str(root)])
    assert [run.name for run in found] == ["other", "pong/seed0", "pong/seed1"]
    assert found[0].task == "dummy_disc"
    assert found[0].method == "mine"
    assert found[2].seed == "1"
    assert [run.name for run in runs.find([str(root / "pong")])] == ["seed0", "seed1"]
    assert [run.name for run in runs.find([f"{root}/*/seed1"])] == ["seed1"]
    twice = runs.find([str(root), str(root / "other")])
    assert len(twice) == 3
    assert len({run.id for run in twice}) == 3


def test_links_in_a_circle(make_run, tmp_path):
    make_run("a")
    root = tmp_path / "logdir"
    (root / "circle").symlink_to(root / "circle")
    for place in (root, root / "*"):
        assert [run.path.name for run in runs.find([str(place)])] == ["a"]


def test_nothing_there(tmp_path):
    with pytest.raises(runs.RunsError, match="does not exist"):
        runs.find([str(tmp_path / "missing")])
    with pytest.raises(runs.RunsError, match=r"metrics\.jsonl"):
        runs.find([str(tmp_path)])
    assert runs.find([str(tmp_path)], strict=False) == []


def test_a_run_without_settings(tmp_path):
    (tmp_path / "metrics.jsonl").touch()
    (run,) = runs.find([str(tmp_path)])
    assert run.task == run.method == run.seed == ""


def test_a_task_in_a_file_goes_without_its_folder(tmp_path):
    folder = "/a/folder with spaces " * 10
    logdir.save({"logdir": str(tmp_path), "task": f"{folder}/my.py:Env", "seed": 3})
    (run,) = runs.find([str(tmp_path)])
    assert (run.task, run.seed) == ("my.py:Env", "3")


def test_media_by_key_in_order(make_run):
    run = make_run()
    for step in (30, 4, 100):
        run.add_file("report/openloop/image", f"{step:012d}.mp4", b"")
    run.add_file("note", "000000000001.txt", b"hi")
    run.add_file("note", ".000000000002.txt.tmp", b"")
    run.add_file("note", "readme.md", b"")
    found = runs.media(run.path)
    assert list(found) == ["note", "report/openloop/image"]
    assert [medium.step for medium in found["report/openloop/image"]] == [4, 30, 100]
    assert [medium.kind for medium in found["note"]] == ["text"]
    assert runs.media(run.path / "missing") == {}


def test_health_of_living_and_ended_roles(make_run):
    run = make_run()
    assert runs.health(run.path) == []
    run.add_roles(agent=(os.getpid(), 2), env0=(2**22 + 1, 0))
    agent, env = runs.health(run.path)
    assert agent == ("agent", os.getpid(), 2, True)
    assert not env.alive
    os.utime(run.path / "roles.json", (1e9, 1e9))  # Before this process began.
    assert not runs.health(run.path)[0].alive
    (run.path / "roles.json").write_text("{")
    assert runs.health(run.path) == []


def test_active_while_the_lock_is_held(make_run):
    run = make_run()
    lock = run.path / "run.lock"
    assert runs.is_active(run.path, silent=5), "no lock, but it has just written"
    assert not runs.is_active(run.path, silent=100)
    with logdir.hold(run.path):
        assert runs.is_active(run.path, silent=1e6)
    assert not runs.is_active(run.path, silent=0), "it has ended"
    lock.write_text(f"{2**22 + 1} on {socket.gethostname()}")
    assert not runs.is_active(run.path, silent=0), "it was killed"
    lock.write_text(str(os.getpid()))
    assert runs.is_active(run.path, silent=1e6), "of an older version"
    lock.write_text("7 on another-machine")
    assert runs.is_active(run.path, silent=300)
    assert not runs.is_active(run.path, silent=3000)
    lock.write_text("garbage")
    assert not runs.is_active(run.path, silent=0)
