"""A logger that hangs, and environments that wait: no score is lost, nothing stops."""

import signal
import threading

import pytest

from embodied.replay.recording import Recording
from tests.e2e.watching import Run, check_counts

# More steps than batches of two that the actor may have on their way to the logger if
# it waited for the answers to 1,024 calls.
MANY = 3000
TIMEOUT = 5.0  # Seconds after which a silent episode is dropped.


def stored(run):
    """Training steps in the files of the replay."""
    return len(Recording(run.logdir / "replay"))


def wait_steps(run, amount):
    goal = stored(run) + amount
    run.wait_for(lambda: stored(run) >= goal, f"{goal} steps", 55)


@pytest.mark.slow
def test_environments_continue_while_the_logger_hangs(tmp_path):
    run = Run(tmp_path)
    run.wait_episodes(8)
    run.kill("logger", signal.SIGSTOP)
    wait_steps(run, MANY)
    run.kill("logger", signal.SIGCONT)
    run.wait_episodes(len(run.scores()) + 8)
    assert run.stop() == 0, run.output
    assert not any(role["restarts"] for role in run.roles().values())
    check_counts(run)


@pytest.mark.slow
def test_no_score_is_lost_with_replay_and_agent_while_the_logger_hangs(tmp_path):
    run = Run(tmp_path)
    run.wait_episodes(8)
    run.kill("logger", signal.SIGSTOP)
    wait_steps(run, 500)
    for role in ("replay", "agent"):
        run.kill(role)
        run.wait_restart(role)
    run.kill("logger", signal.SIGCONT)
    run.wait_episodes(len(run.scores()) + 30)
    assert run.stop() == 0, run.output
    check_counts(run, agents=1)


@pytest.mark.slow
def test_no_score_is_lost_when_everything_is_killed_at_once(tmp_path):
    first = Run(tmp_path)
    first.wait_episodes(8)
    first.kill("logger", signal.SIGSTOP)
    wait_steps(first, 500)
    first.process.kill()
    first.process.wait(30)
    second = Run(tmp_path)
    second.wait_episodes(len(second.scores()) + 30)
    assert second.stop() == 0, second.output
    check_counts(second, agents=1)


@pytest.mark.slow
def test_each_episode_is_logged_once_while_all_roles_are_killed(tmp_path):
    run = Run(tmp_path)
    run.wait_episodes(8)
    for role in ("logger", "agent", "replay", "env0"):
        run.kill(role)
        run.wait_restart(role)
    run.wait_episodes(len(run.scores()) + 8)
    assert run.stop() == 0, run.output
    check_counts(run, agents=1)


@pytest.mark.slow
def test_episodes_that_the_run_holds_back_are_not_dropped(tmp_path):
    run = Run(tmp_path, "--episode_timeout", TIMEOUT)
    run.wait_episodes(8)
    run.kill("agent", signal.SIGSTOP)
    threading.Event().wait(2 * TIMEOUT)
    run.kill("agent", signal.SIGCONT)
    run.wait_episodes(len(run.scores()) + 8)
    assert run.stop() == 0, run.output
    check_counts(run)
