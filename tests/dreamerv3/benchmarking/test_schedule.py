"""Which jobs are run, in what order, and what becomes of failures."""

import json

import pytest

from dreamerv3.benchmarking import api, display, jobs, schedule
from dreamerv3.benchmarking.jobs import Request
from dreamerv3.benchmarking.schedule import Ended, Progress


class FakeRunner:
    """Finishes a job at each wait, unless the job is to fail."""

    def __init__(self, slots=1, fails=(), interrupt=False):
        self.slots = slots
        self.fails = fails
        self.interrupt = interrupt
        self.running = []
        self.started = []
        self.most = 0
        self.stopped = False

    def start(self, job):
        self.running.append(job)
        self.started.append(job)
        self.most = max(self.most, len(self.running))

    def wait(self, timeout):
        if self.interrupt:
            raise KeyboardInterrupt
        job = self.running.pop(0)
        if job.seed in self.fails:
            return [Ended(job, 1, "the motor is stuck")]
        finish(job)
        return [Ended(job, 0, "")]

    def stop(self):
        self.stopped = True


def finish(job, step=None):
    job.logdir.mkdir(parents=True, exist_ok=True)
    (job.logdir / "config.yaml").write_text(f"task: {job.task}\n")
    row = json.dumps({"step": step or job.steps, "time": 1e9, "episode/score": 1.0})
    (job.logdir / "metrics.jsonl").write_text(row + "\n")
    (job.logdir / "scores.jsonl").write_text(row + "\n")


@pytest.fixture
def progress(tmp_path):
    flags = ("--configs", "debug")
    request = Request("track", (), 4, 100, {}, str(tmp_path), flags)
    return Progress(jobs.make(request), 1)


def quiet(progress):
    pass


def test_all_jobs_run_in_the_slots(progress):
    runner = FakeRunner(slots=2)
    schedule.run(progress, runner, quiet)
    assert runner.started == progress.jobs
    assert runner.most == 2
    assert runner.stopped
    assert {progress.state(job) for job in progress.jobs} == {"done"}


def test_finished_jobs_are_not_repeated_and_others_resumed(progress):
    finish(progress.jobs[1])
    finish(progress.jobs[2], step=50)
    progress.refresh()
    runner = FakeRunner()
    schedule.run(progress, runner, quiet)
    assert [job.seed for job in runner.started] == [0, 2, 3]


def test_a_failure_is_told_and_the_others_run(progress):
    runner = FakeRunner(fails=(1,))
    schedule.run(progress, runner, quiet)
    assert len(runner.started) == 4
    states = [progress.state(job) for job in progress.jobs]
    assert states == ["done", "failed", "done", "done"]
    ((job, text),) = progress.failed.items()
    assert job.seed == 1
    assert "exit code 1 at step 0 of 100" in text
    assert "the motor is stuck" in text


def test_a_job_that_ends_early_failed(progress, monkeypatch):
    runner = FakeRunner()
    monkeypatch.setitem(globals(), "finish", lambda job: None)
    schedule.run(progress, runner, quiet)
    assert len(progress.failed) == 4


def test_a_job_of_another_command_is_left_to_it(progress, monkeypatch):
    real, looks = jobs.look, []

    def look(job, own=False):
        if job.seed == 0 and len(looks) < 3:
            looks.append(job)
            return jobs.Status(jobs.HELD)
        if job.seed == 0:
            finish(job)
        return real(job, own)

    monkeypatch.setattr(jobs, "look", look)
    progress.refresh()
    runner = FakeRunner()
    runner.wait = lambda timeout: FakeRunner.wait(runner, 0) if runner.running else []
    schedule.run(progress, runner, quiet)
    assert [job.seed for job in runner.started] == [1, 2, 3]


def test_ctrl_c_stops_the_runner(progress):
    runner = FakeRunner(interrupt=True)
    with pytest.raises(KeyboardInterrupt):
        schedule.run(progress, runner, quiet)
    assert runner.stopped
    assert {progress.state(job) for job in progress.jobs} == {"waiting"}


def test_lines_tell_changes(progress, capsys):
    lines = display.Lines(progress)
    finish(progress.jobs[2])
    progress.refresh()
    lines(progress)
    text = capsys.readouterr().out
    assert "track_7 dreamerv3 seed 2: done, step 100, score 1.0" in text
    assert "jobs: 1 done, 0 running, 0 failed, 3 waiting" in text


def test_the_table_has_a_row_for_each_task(progress):
    finish(progress.jobs[2])
    progress.refresh()
    table = display.table(progress)
    cells = [list(column.cells) for column in table.columns]
    assert cells[0] == ["track_7", "all"]
    assert cells[1] == ["1", "1"]
    assert cells[4] == ["3", "3"]


def test_from_python_with_results(tmp_path, monkeypatch, capsys):
    import dreamerv3

    runner = FakeRunner(slots=2)
    monkeypatch.setattr(api, "make_runner", lambda *args: runner)
    options = {"seeds": 2, "budget": 100, "configs": ["debug"], "run": {"envs": 1}}
    options |= {"logdir": str(tmp_path / "bench")}
    outcome = dreamerv3.benchmark("builtin", **options)
    assert outcome.done == len(outcome.jobs) == 4
    assert outcome.jobs[0].values["run.envs"] == 1
    names = {"benchmark.html", "benchmark.png", "benchmark.json"}
    assert names <= {path.name for path in (tmp_path / "bench").iterdir()}
    again = dreamerv3.benchmark("builtin", **options)
    assert again.done == 4
    assert len(runner.started) == 4, "nothing was repeated"
