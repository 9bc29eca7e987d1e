"""Every file of a log directory that is read back, when it is damaged.

Each is recovered, or rejected by one line with its name and the remedy; the files of
roles are in tests/embodied/run/parallel/test_state_files.py.
"""

import json
import types

import elements
import numpy as np
import pytest

from dreamerv3.benchmarking import jobs, results
from dreamerv3.settings import logdir, plan
from dreamerv3.settings.config import ConfigError
from dreamerv3.viewing import cache, published, runs
from dreamerv3.viewing.table import Table
from dreamerv3.viewing.tail import Tail
from embodied import rpc
from embodied.core import base, runfiles, spacefile
from embodied.envs import original
from embodied.metrics.jsonl import read_rows
from embodied.metrics.summary import read_id
from embodied.testing.damage import KINDS, damage

SPACES = {"image": elements.Space(np.uint8, (8, 8, 3))}, {"reset": elements.Space(bool)}
ROWS = [{"step": 10 * i, "time": float(i), "episode/score": float(i)} for i in range(9)]

pytestmark = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def run(tmp_path):
    """A log directory with files as a run writes them."""
    values = {"logdir": str(tmp_path), "task": "dummy_disc", "run.steps": 100}
    logdir.save({**values, "seed": 0, "agent.dyn.rssm.deter": 32})
    spacefile.write(tmp_path, *SPACES)
    original.write(tmp_path, {"version": 1, "resize": [0, 0], "gray": False})
    text = "".join(json.dumps(row) + "\n" for row in ROWS)
    for name in (runfiles.METRICS, runfiles.SCORES):
        (tmp_path / name).write_text(text)
    (tmp_path / "replay").mkdir()
    (tmp_path / "replay" / "0000000001.chunk").touch()
    return tmp_path


def is_helpful(error, path):
    """Whether a message is one line with the file."""
    return str(path) in str(error) and "\n" not in str(error)


def test_settings(run, kind):
    """Not even a part of them is taken: the rest would become the defaults."""
    path = run / runfiles.CONFIG
    assert logdir.load(run)["agent.dyn.rssm.deter"] == 32
    damage(path, kind)
    with pytest.raises(ConfigError) as caught:
        logdir.load(run)
    (problem,) = caught.value.problems
    assert problem.value == str(path)
    assert "cannot be read" in problem.rule
    assert "remove it and give all flags of the run again" in problem.remedy


def test_spaces(run, kind, capsys):
    path = run / runfiles.SPACES
    damage(path, kind)
    with pytest.raises(base.SetupError, match="resume the run, which writes it") as e:
        spacefile.read(run)
    assert is_helpful(e.value, path)
    # A start has the environment, and so all that was lost.
    assert logdir.check_spaces(run, *SPACES) == []
    (line,) = capsys.readouterr().out.splitlines()
    assert str(path) in line


def test_original_spaces(run, kind):
    damage(run / runfiles.ORIGINAL, kind)
    with pytest.raises(original.OriginalError, match="resume the run") as caught:
        original.read(run)
    assert is_helpful(caught.value, run / runfiles.ORIGINAL)


@pytest.mark.parametrize("name", ["server", "client"])
def test_keys(tmp_path, kind, name):
    rpc.make_keys(tmp_path)
    damage(tmp_path / f"{name}.json", kind)
    load = {"server": rpc.load_server, "client": rpc.load_client}[name]
    with pytest.raises(base.SetupError, match="make keys anew") as caught:
        load(tmp_path)
    assert is_helpful(caught.value, tmp_path / f"{name}.json")


def test_scores(run, kind):
    """Rows that are left are used by all that read them."""
    for name in (runfiles.METRICS, runfiles.SCORES):
        damage(run / name, kind)
    left = len(read_rows(run / runfiles.SCORES))
    assert left == (4 if kind == "truncated" else 0)
    steps, _ = results.episodes(run)
    assert len(steps) == left
    last = ROWS[left - 1]["step"] if left else 0
    assert published.last_step(run) == last
    job = types.SimpleNamespace(logdir=run, steps=1000)
    assert jobs.look(job).step == last
    config = types.SimpleNamespace(
        logdir=str(run),
        script="train",
        logger=types.SimpleNamespace(outputs=["jsonl"]),
        run=types.SimpleNamespace(remote_logger=False, steps=1000),
        task="dummy_disc",
    )
    text = f"the last {left} episodes" if left else "no episode has ended yet"
    assert text in plan.closing(config)


def test_roles_and_lock(run, kind):
    path = run / runfiles.ROLES
    path.write_text(json.dumps({"agent": {"pid": 1, "restarts": 0}}))
    damage(path, kind)
    assert runfiles.read_roles(path) == []
    with logdir.hold(run):
        damage(run / runfiles.LOCK, kind)
        assert runs.is_active(run, silent=0.0) in (True, False)
        with pytest.raises(ConfigError, match="logdir"), logdir.hold(run):
            pass
    with logdir.hold(run):
        pass


@pytest.mark.parametrize("digits", [12, 32])
def test_ids_of_services(tmp_path, kind, digits, capsys):
    path = tmp_path / "id.txt"
    path.write_text("0123456789abcdef0123456789abcdef"[:digits])
    assert len(read_id(path, digits)) == digits
    damage(path, kind)
    assert read_id(path, digits) == ""
    (line,) = capsys.readouterr().out.splitlines()
    assert str(path) in line


def test_cache_of_the_viewer(run, tmp_path, kind):
    files = {"scores": run / runfiles.SCORES}
    path = tmp_path / "cache"
    cache.save(path, {"scores": (Tail(files["scores"]), Table())})
    assert cache.load(path, files) is not None
    damage(path, kind)
    assert cache.load(path, files) is None
