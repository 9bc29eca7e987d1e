"""The end of a run whose roles are killed before their turn to save has come."""

import signal

import psutil
import pytest

from tests.e2e.watching import Run, check_counts

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def kill_at_end(tmp_path):
    """Ends a run and kills a role before it is asked to save."""

    def end(role):
        run = Run(tmp_path)
        run.follow()
        run.wait_episodes(8)
        # An environment is asked first, so that a stopped one delays all others.
        env = psutil.Process(run.roles()["env0"]["pid"])
        env.suspend()
        run.process.send_signal(signal.SIGTERM)
        run.wait_for(lambda: "Stopping and saving" in run.output, "request to stop")
        run.kill(role)
        env.resume()
        run.process.wait(120)
        run.printed()
        return run

    return end


def test_an_agent_that_dies_before_it_saves_is_reported(kill_at_end):
    run = kill_at_end("agent")
    assert run.process.returncode != 0
    assert "role 'agent' ended before it had saved everything" in run.output
    assert "What the agent has learned since" in run.output
    assert "(step " in run.output
    check_counts(run, agents=1)


@pytest.mark.parametrize("role", ["replay", "logger"])
def test_a_receiver_that_dies_is_there_again_for_the_last_steps(kill_at_end, role):
    run = kill_at_end(role)
    assert run.process.returncode == 0, run.output
    assert f"{role} failed" in run.output
    assert "did not stop in time" not in run.output
    check_counts(run)


def test_an_agent_does_not_wait_for_a_replay_that_is_gone(tmp_path):
    run = Run(tmp_path, "--budget", 0)
    run.follow()
    run.wait_episodes(8)
    before = newest(run)
    run.kill("replay")
    assert run.process.wait(120) != 0
    assert "role 'replay' failed 1 time" in run.printed()
    assert "did not stop in time" not in run.output
    assert newest(run) > before, "what the agent has learned is not saved"


def newest(run):
    """The newest checkpoint of the agent."""
    return max((run.logdir / "ckpt" / "agent").glob("0*"))
