"""MiniGrid on the real package: images, symbols and missions."""

import pytest

pytest.importorskip("minigrid")

from embodied import envs
from embodied.envs.minigrid import WORDS
from embodied.envs.registry import TaskError
from embodied.testing import check_env

RESET = {"action": 0, "reset": True}
OPTIONS = [
    {},
    {"full": True},
    {"symbolic": True, "mission": False},
    {"symbolic": True, "full": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", ["DoorKey-5x5-v0", "BabyAI-GoToObjS4-v0"])
def test_contract(name, options):
    check_env(lambda: envs.make(f"minigrid_{name}", **options))


def test_the_mission_can_be_read():
    obs = envs.make("minigrid_DoorKey-5x5-v0").step(RESET)
    words = [WORDS[number - 1] for number in obs["mission"] if number]
    text = "use the key to open the door and then get to the goal"
    assert " ".join(words) == text


def test_symbols_show_the_grid():
    options = {"symbolic": True, "full": True}
    obs = envs.make("minigrid_Empty-5x5-v0", **options).step(RESET)
    cells = obs["objects"].reshape(5, 5)
    assert (cells[[0, -1]] == 2).all()  # Walls.
    assert cells[3, 3] == 8  # The goal.
    assert cells[1, 1] == 10  # The agent.
    assert obs["direction"] == 0


def test_the_partial_view_hides_what_is_behind():
    partial = envs.make("minigrid_Empty-8x8-v0").step(RESET)["image"]
    full = envs.make("minigrid_Empty-8x8-v0", full=True).step(RESET)["image"]
    assert partial.shape == full.shape == (64, 64, 3)
    assert (partial != full).any()


def test_reaching_the_goal_is_terminal_and_running_out_of_time_is_not():
    env = envs.make("minigrid_Empty-5x5-v0")
    env.step(RESET)
    obs = [env.step({"action": a, "reset": False}) for a in (2, 2, 1, 2, 2)][-1]
    assert obs["is_terminal"]
    assert obs["reward"] > 0.5
    obs = env.step(RESET)
    while not obs["is_last"]:
        obs = env.step({"action": 0, "reset": False})
    assert not obs["is_terminal"]


def test_every_level_has_a_mission_we_can_write():
    """One reset of each registered task; a new word would raise."""
    import gymnasium

    names = [k for k in gymnasium.registry if k.startswith(("MiniGrid-", "BabyAI-"))]
    names = [k for k in names if "WFC" not in k]  # Their patterns are not in the wheel.
    assert len(names) > 100
    slow = ("Boss", "KeyCorridorS6", "ObstructedMaze", "Synth", "Mixed", "Unlock")
    for name in names:
        if not any(part in name for part in slow):
            obs = envs.make(f"minigrid_{name}", symbolic=True).step(RESET)
            assert obs["mission"].max() <= len(WORDS)


def test_unknown_tasks_name_the_nearest():
    with pytest.raises(TaskError, match="did you mean minigrid_DoorKey-5x5-v0"):
        envs.make("minigrid_DoorKey-5x5")
