"""Settings that make no sense are refused, all at once, before anything starts."""

import pytest

from dreamerv3.settings import config, rules
from embodied.core import machine

DEFAULTS = config.read_blocks().defaults
SCRIPTS = ("parallel", "train", "train_eval")


def check(**changes):
    return rules.check({**DEFAULTS, **changes}, SCRIPTS)


def test_defaults_are_fine():
    assert check() == []


BAD = {
    "batch_size": 0,
    "batch_length": 0,
    "consec_train": 0,
    "replay_context": -1,
    "seed": -1,
    "run.steps": 0,
    "run.duration": -1,
    "run.envs": 0,
    "run.eval_envs": -1,
    "run.train_ratio": -1.0,
    "run.log_every": 0,
    "run.actor_timeout": -1.0,
    "run.learner_timeout": 1.0,
    "ray.gpus": -1.0,
    "ray.memory": -1,
    "run.learner_start_timeout": 0.0,
    "run.envs_per_process": 0,
    "run.budget": -1,
    "replay.memory": -1,
    "jax.mesh": (0, 1, 1),
    "jax.prefetch": -2,
    "jax.policy_devices": (),
    "agent.imag_length": 0,
    "agent.enc.simple.mults": (),
    "run.from_checkpoint": "/does/not/exist",
    "run.from_checkpoint_regex": "[",
    "env.dummy.size": (64,),
    "env.bounce.length": 0,
    "replay.size": 10,
    "replay.fracs": None,
    "logger.fps": 0,
    "logger.outputs": ("terminal", "paper"),
    "logger.filter": "(",
    "jax.platform": "abacus",
    "jax.compute_dtype": "float8",
    "agent.eval_mode": "lucky",
    "agent.horizon": 1,
    "agent.opt.lr": 0.0,
    "agent.dyn.rssm.deter": 513,
    "agent.dyn.rssm.stoch": 0,
    "agent.dyn.rssm.classes": -1,
    "agent.dyn.rssm.obslayers": 0,
    "agent.dyn.rssm.unroll": 0,
    "agent.dyn.rssm.unimix": -0.1,
    "agent.dyn.rssm.free_nats": -1.0,
    "agent.enc.simple.layers": -1,
    "agent.enc.simple.kernel": 0,
    "agent.dec.simple.bspace": 0,
    "agent.value.bins": 100,
    "agent.slowvalue.every": 0,
    "agent.retnorm.perchi": 101.0,
    "agent.opt.beta2": 1.5,
    "agent.opt.agc": -1.0,
    "report_length": 65,
    "script": "trian",
    "task": "bounce_33",
    "logdir": "/proc/version/x",
}


@pytest.mark.parametrize("key", BAD)
def test_bad_values_are_named_with_rule_and_remedy(key):
    changes = {key: BAD[key]}
    if key == "replay.fracs":
        changes = {"replay.fracs.uniform": 0.5}
    (problem,) = check(**changes)
    assert problem.key == key
    assert problem.rule
    assert problem.remedy


def test_problems_come_together():
    problems = check(**{"run.envs": 0, "run.steps": 0, "script": "trian"})
    assert len(problems) == 3
    assert "did you mean train?" in problems[-1].remedy


def test_a_log_directory_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    (problem,) = check(logdir=str(tmp_path / "file" / "deep"))
    assert problem.rule == f"cannot write to {tmp_path / 'file'} (Not a directory)"
    assert check(logdir=str(tmp_path / "new" / "deep")) == []
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_parallel_run_needs_no_evaluation():
    assert check(**{"run.eval_envs": 0}) == []
    (problem,) = check(**{"run.eval_envs": 0, "script": "train_eval"})
    assert problem.key == "run.eval_envs"


def test_figures_of_gpus_need_their_library(monkeypatch):
    monkeypatch.setattr(rules.importlib.util, "find_spec", lambda name: None)
    (problem,) = check(**{"run.usage.nvsmi": True})
    assert problem.remedy == "pip install 'dreamerv3-distributed[gpu]'"
    monkeypatch.setattr(rules.importlib.util, "find_spec", lambda name: name)
    assert check(**{"run.usage.nvsmi": True}) == []


def test_devices_fit_together():
    two = {"jax.mock_devices": 2, "jax.train_devices": (0, 1)}
    assert check(**two) == []
    assert check(**two, **{"jax.mesh": (1, 1, 2), "batch_size": 5}) == []
    (problem,) = check(**two, batch_size=5)
    assert (problem.key, problem.remedy) == ("batch_size", "for example 6")
    (problem,) = check(**{**two, "jax.train_devices": (1, 2)})
    assert problem.rule == "jax.mock_devices 2 makes devices 0 to 1"
    (problem,) = check(**two, **{"jax.platform": "cuda"})
    assert problem.rule == "splits a CPU, but jax.platform is cuda"


def test_a_platform_that_is_not_there_is_rejected_at_once(monkeypatch):
    gpu = machine.Accelerator("NVIDIA GPU", ("/dev/no-such",), ("numpy",), "gpu")
    monkeypatch.setattr(machine, "ACCELERATORS", {"cuda": gpu})
    (problem,) = check(**{"jax.platform": "cuda"})
    assert problem.key == "jax.platform"
    assert "no NVIDIA GPU (/dev/no-such)" in problem.rule
    assert problem.remedy == "use auto or cpu"
    assert check(**{"jax.platform": "cuda", "random_agent": True}) == []
    there = gpu._replace(files=("/dev/null",))
    monkeypatch.setattr(machine, "ACCELERATORS", {"cuda": there})
    assert check(**{"jax.platform": "cuda"}) == []
    bare = there._replace(plugins=("no_such_plugin",))
    monkeypatch.setattr(machine, "ACCELERATORS", {"cuda": bare})
    (problem,) = check(**{"jax.platform": "cuda"})
    assert problem.remedy == "pip install 'dreamerv3-distributed[gpu]'"
