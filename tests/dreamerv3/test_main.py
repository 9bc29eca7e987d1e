"""The factories that take the config: environments, their seeds and options."""

import elements
import numpy as np
import pytest

import dreamerv3
from dreamerv3 import environments, main
from dreamerv3.settings import config, flags
from dreamerv3.settings.config import ConfigError
from embodied.core import base, runfiles, spacefile
from embodied.envs.dummy import Dummy
from embodied.envs.registry import TaskError
from embodied.run import restore

BLOCKS = config.read_blocks()
DEFAULTS = BLOCKS.defaults


@pytest.mark.parametrize(
    ("script", "given", "ahead"),
    [("parallel", -1, 2), ("train", -1, 0), ("parallel", 0, 0), ("train", 3, 3)],
)
def test_batches_are_ahead_in_parallel_runs(script, given, ahead):
    values = {**DEFAULTS, "script": script, "jax.prefetch": given}
    made = main.make_agent_config(config.to_config(values))
    assert made.jax.prefetch == ahead
    assert made.jax.platform == "auto"


def test_checkpoints_carry_all_settings():
    args = main.make_args(config.to_config(DEFAULTS))
    assert args.usage.psutil
    found = config.flatten(restore.meta(args)["config"])
    assert set(found) == set(DEFAULTS)
    assert found["agent.opt.lr"] == DEFAULTS["agent.opt.lr"]
    assert found["replay.priority.initial"] == "inf"


def settings(*argv) -> elements.Config:
    problems: list = []
    values = flags.layer(BLOCKS, flags.parse(argv, problems), {}, problems)
    assert not problems
    return config.to_config(values)


def test_every_environment_of_a_run_has_a_seed_of_its_own():
    seeds = {
        environments.env_seed(seed, index, mode)
        for seed in (0, 1)
        for index in range(100)
        for mode in ("train", "eval")
    }
    assert len(seeds) == 400
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert environments.env_seed(3, 5, "train") == environments.env_seed(3, 5, "train")


def test_seed_and_index_decide_what_an_environment_shows():
    def first(*argv, **options):
        env = main.make_env(settings("--task", "dummy_disc", *argv), **options)
        return env.step({"reset": np.asarray(True), "act_disc": np.int32(0)})["vector"]

    np.testing.assert_array_equal(first(index=1), first(index=1))
    others = [first(index=2), first(index=1, mode="eval"), first("--seed", "1")]
    for other in others:
        assert (other != first(index=1)).any()


def test_options_of_the_suite_reach_its_environment():
    config = settings("--task", "dummy_disc", "--env.dummy.size", "8", "8")
    assert main.make_env(config).obs_space["image"].shape == (8, 8, 3)


def test_a_held_factory_gets_the_options_of_custom_tasks():
    def make(seed, index):
        seen.append((seed, index))
        return Dummy("cont", size=(96, 96))

    seen: list = []
    config = settings("--task", "python:make", "--env.custom.gray", "True")
    env = main.make_env(config, 2, factory=make)
    assert env.obs_space["image"].shape == (64, 64, 1)
    assert seen == [(environments.env_seed(0, 2, "train"), 2)]
    assert "96x96" in env.notes[0]
    assert base.RESET in env.act_space


def test_a_run_of_another_environment_is_refused_untouched(tmp_path):
    (tmp_path / "ckpt" / "agent" / "00000001").mkdir(parents=True)
    obs = {"vector": elements.Space(np.float32, (3,))}
    spacefile.write(tmp_path, obs, {"action": elements.Space(np.int32, (), 0, 2)})
    before = (tmp_path / runfiles.SPACES).read_text()
    flags = ["--configs", "debug", "--task", "dummy_disc", "--logdir", str(tmp_path)]
    with pytest.raises(ConfigError, match="observation 'vector'"):
        main.main(flags)
    assert [path.name for path in tmp_path.iterdir()] == ["ckpt", runfiles.SPACES]
    assert (tmp_path / runfiles.SPACES).read_text() == before


class Torn(Dummy):
    """Shows another shape than its space says, or fails to show anything."""

    fails = False

    def step(self, action):
        if self.fails:
            raise KeyError("broken on purpose")
        return super().step(action) | {"vector": np.zeros(5, np.float32)}

    def close(self):
        raise OSError("It cannot be closed, either.")


@pytest.mark.parametrize(
    ("fails", "text"),
    [
        (False, r"observation 'vector' has shape \(5,\)"),
        (True, "broken on purpose"),
    ],
)
def test_a_first_observation_that_fails_starts_nothing(
    tmp_path, monkeypatch, fails, text
):
    monkeypatch.setattr(Torn, "fails", fails)
    logdir = tmp_path / "run"
    with pytest.raises(TaskError, match=text):
        dreamerv3.train(lambda: Torn("disc"), "debug", logdir=str(logdir))
    assert not logdir.exists()
