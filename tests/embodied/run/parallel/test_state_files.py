"""A run whose state files are damaged: recovered and reported, or ended in one line."""

import shutil

import pytest

from embodied.core import runfiles
from embodied.core.checkpoint import complete, read_item
from embodied.core.formats import NewerFormatError
from embodied.metrics.jsonl import read_rows
from embodied.process.worker import RoleError
from embodied.run.parallel import journal, membership
from embodied.testing.damage import KINDS, damage
from tests.embodied.run.parallel.test_logger import Life
from tests.embodied.run.parallel.test_whole_run import STEPS, Run

ROLES = ("agent", "replay", "logger")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The log directory of a run that has ended."""
    logdir = tmp_path_factory.mktemp("finished") / "run"
    Run(logdir)()
    for role in ROLES:
        assert len(complete(logdir / "ckpt" / role)) == 2
    return logdir


@pytest.fixture
def run(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    return Run(tmp_path / "run")


def checkpoint_file(logdir, role):
    """One file of the newest checkpoint of a role."""
    newest = complete(logdir / "ckpt" / role)[-1]
    return newest / {"agent": "meta.json"}.get(role, f"{role}/tree.json")


@pytest.mark.parametrize(
    "kind",
    [k if k == "garbage" else pytest.param(k, marks=pytest.mark.slow) for k in KINDS],
)
def test_a_run_resumes_from_damaged_files_and_names_each(run, kind, capsys, caplog):
    """Each file has a copy, is rewritten, or loses no more than its own content."""
    logdir = run.logdir
    (logdir / runfiles.MEMBERS).write_text('{"version": 1, "members": {"a": [7, 8]}}')
    named = [checkpoint_file(logdir, role) for role in ROLES]
    named += [logdir / name for name in (runfiles.INCARNATION, runfiles.MEMBERS)]
    named += [logdir / name for name in (runfiles.METRICS, runfiles.SCORES)]
    if kind == "truncated":  # Half a number is one, and the clock is ahead of it.
        named.remove(logdir / runfiles.INCARNATION)
    chunk = min((logdir / "replay").glob("*.chunk"))
    for path in (*named, chunk, logdir / runfiles.ROLES):
        damage(path, kind)
    assert run(steps=STEPS + 60) == "agent completed the run"
    lines = capsys.readouterr().out.splitlines()
    for path in named:
        assert any(str(path) in line for line in lines), (path, lines)
    assert f"Skipping {chunk.name}" in caplog.text
    learner = read_item(logdir / "ckpt" / "agent", "learner")
    assert learner["step"] == STEPS + 60
    assert read_item(logdir / "ckpt" / "logger", "logger")["step"] == STEPS + 60
    assert not capsys.readouterr().out  # What is there now is whole.


@pytest.mark.slow
@pytest.mark.parametrize("role", ROLES)
def test_without_a_whole_checkpoint_the_run_ends_in_one_line(run, role):
    directory = run.logdir / "ckpt" / role
    for checkpoint in complete(directory):
        damage(checkpoint / "meta.json", "garbage")
    with pytest.raises(RoleError) as caught:
        run(steps=STEPS + 60)
    title, message = str(caught.value).splitlines()
    assert title == f"role '{role}' failed 1 time, last with:"
    assert f"no other checkpoint to use in {directory}: restore it" in message


@pytest.mark.parametrize("kind", KINDS)
def test_a_logger_with_a_damaged_checkpoint_loses_no_metrics(tmp_path, kind):
    """The journal reaches back to the checkpoint before the last one."""
    life = Life(tmp_path)
    for value in range(4):
        life.board.add({"loss": value})
        if value < 3:
            life.board.write()
    # Killed here: three writes are in the outputs and one value in the journal.
    damage(checkpoint_file(tmp_path, "logger"), kind)
    life = Life(tmp_path)
    life.board.write()
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert [row["loss"] for row in rows if "loss" in row] == [0, 1, 2, 3]
    life.board.close()


def test_a_journal_of_a_newer_release_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "VERSION", 2)
    newer = journal.Journal(tmp_path / "journal")
    newer.append("add", {"loss": 1})
    newer.close()
    monkeypatch.undo()
    text = "journal has format 2, .* written by a newer release"
    with pytest.raises(NewerFormatError, match=text):
        journal.Journal(tmp_path / "journal")


def test_members_of_a_newer_release_are_rejected(tmp_path):
    path = tmp_path / "members.json"
    path.write_text('{"version": 2, "people": []}')
    with pytest.raises(NewerFormatError, match=r"members\.json has format 2"):
        membership.read(path)


def test_a_missing_checkpoint_of_the_agent_beside_stored_steps_is_announced(
    run, capsys
):
    assert "There is no checkpoint in" not in capsys.readouterr().out
    shutil.rmtree(run.logdir / "ckpt" / "agent")
    run(steps=STEPS + 60)
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if "There is no checkpoint in" in line]
    assert str(run.logdir / "ckpt" / "agent") in line
    assert f"{STEPS} steps are stored" in line
