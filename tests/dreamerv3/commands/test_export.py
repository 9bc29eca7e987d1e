"""`dreamerv3 export`: the file acts as the agent does, with JAX alone."""

import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from jax import export

import dreamerv3
from dreamerv3 import main
from dreamerv3.commands import export as command
from dreamerv3.commands.base import CommandError

STEPS = 3

# What docs/deployment.md shows; runs where neither dreamerv3 nor embodied is.
USER = """
import json, sys, zipfile
import numpy as np
from jax import export

sys.modules["dreamerv3"] = sys.modules["embodied"] = None
with zipfile.ZipFile(sys.argv[1]) as archive:
    policy = export.deserialize(bytearray(archive.read("policy.bin")))
    about = json.loads(archive.read("policy.json"))
carry = [np.zeros(x["shape"], x["dtype"]) for x in about["carry"]]
obs = dict(np.load(sys.argv[2]))
actions = []
for step in range(int(sys.argv[3])):
    obs["is_first"][:] = step == 0
    carry, action = policy.call(carry, obs, np.uint32(step))
    actions.append({k: np.asarray(v).tolist() for k, v in action.items()})
print(json.dumps(actions))
"""


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "run"
    argv = ["--configs", "debug", "--task", "dummy_cont", "--script", "train"]
    argv += ["--env.dummy.size", "32", "32", "--run.steps", "80", "--logdir", str(path)]
    # So that what was learned shows.
    argv += ["--agent.opt.lr", "0.3", "--agent.opt.warmup", "0"]
    main.main([*argv, "--run.env_processes", "False", "--logger.outputs", "jsonl"])
    return path


@pytest.mark.process
def test_it_acts_as_the_agent_does(logdir, tmp_path):
    path = tmp_path / "policy.zip"
    command.run([str(logdir), "-o", str(path), "--batch", "2", "--mode", "greedy"])
    with zipfile.ZipFile(path) as archive:
        about = json.loads(archive.read("policy.json"))
    obs = {k: np.zeros(x["shape"], x["dtype"]) for k, x in about["obs"].items()}
    np.savez(tmp_path / "obs.npz", **obs)
    words = [sys.executable, "-c", USER, path, tmp_path / "obs.npz", str(STEPS)]
    result = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    actions = json.loads(result.stdout)
    agent = dreamerv3.load(logdir, **{"agent.eval_mode": "greedy"})
    for step, action in enumerate(actions):
        ours = agent.act({**obs, "is_first": np.full(2, step == 0)})
        for key, value in action.items():
            np.testing.assert_allclose(value, ours[key], rtol=1e-4, atol=1e-5)
    fresh = main.make_agent(agent.config, agent.obs_space, agent.act_space, quiet=True)
    start = {**obs, "is_first": np.ones(2, bool)}
    _, untrained, _ = fresh.policy(fresh.init_policy(2), start, "eval")
    assert np.abs(untrained["act_cont"] - actions[0]["act_cont"]).max() > 0.1


def test_actions_stay_within_their_bounds(logdir, tmp_path):
    """Samples of a normal distribution do not, and `act` cuts them, too."""
    agent = dreamerv3.load(logdir)
    program, about = command.export_policy(agent, 64, ["cpu"])
    carry = [np.zeros(x["shape"], x["dtype"]) for x in about["carry"]]
    obs = {k: np.zeros(x["shape"], x["dtype"]) for k, x in about["obs"].items()}
    policy = export.deserialize(bytearray(program))
    _, action = policy.call(carry, obs, np.uint32(0))
    assert np.abs(action["act_cont"]).max() == 1
    space = about["action"]["act_cont"]
    assert (space["low"], space["high"], space["shape"]) == (-1, 1, [64, 6])


def test_other_platforms_need_not_be_here(logdir, tmp_path):
    path = tmp_path / "policy.zip"
    command.run([str(logdir), "-o", str(path), "--platforms", "cuda", "tpu"])
    with zipfile.ZipFile(path) as archive:
        assert json.loads(archive.read("policy.json"))["platforms"] == ["cuda", "tpu"]


def test_mistakes(logdir):
    with pytest.raises(CommandError, match="--batch 0"):
        command.parse([str(logdir), "--batch", "0"])
    with pytest.raises(CommandError, match="cannot write"):
        command.run([str(logdir), "-o", "/dev/null/policy.zip"])


def test_a_directory_is_no_file_to_write(tmp_path):
    with pytest.raises(CommandError, match="is a directory: name a file"):
        command.parse(["logdir", "--output", str(tmp_path)])
