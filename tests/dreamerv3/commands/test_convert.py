"""`dreamerv3 convert`: a public checkpoint computes the same here, and resumes."""

import functools
import json
import pathlib
import pickle
import shutil
import zipfile

import jax
import numpy as np
import pytest

import dreamerv3
from dreamerv3 import cli, main
from dreamerv3.commands import convert, export
from dreamerv3.public import names
from dreamerv3.settings.config import ConfigError
from embodied.core import treefile
from embodied.core.checkpoint import CheckpointError, complete, read_item
from embodied.jax import batches, distributions, params

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "public"
PUBLIC = GOLDEN / "run"
STAMP = (PUBLIC / "ckpt" / "latest").read_text().strip()
QUIET = ["--logger.outputs", "jsonl", "--logger.report", "False"]
FEW = ["--run.envs", "2", "--run.eval_envs", "0", *QUIET]


@pytest.fixture(scope="module")
def tensors():
    with (PUBLIC / "ckpt" / STAMP / "agent.pkl").open("rb") as file:
        return pickle.load(file)["params"]


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    path = tmp_path_factory.mktemp("convert") / "new"
    convert.run([str(PUBLIC), str(path)])
    return path


@pytest.fixture
def public(tmp_path):
    """A copy to change."""
    return pathlib.Path(shutil.copytree(PUBLIC, tmp_path / "public"))


def rewrite(public, change):
    """Change the pickled agent."""
    path = public / "ckpt" / STAMP / "agent.pkl"
    agent = pickle.loads(path.read_bytes())
    change(agent)
    path.write_bytes(pickle.dumps(agent))


def make_parallel(public):
    """The layout of a parallel run."""
    (public / "ckpt" / STAMP / "step.pkl").unlink()
    (public / "ckpt").rename(public / "agent")
    (public / "ckpt").mkdir()
    (public / "agent").rename(public / "ckpt" / "agent")


@pytest.mark.golden
def test_it_computes_the_same(converted, monkeypatch):
    """Total loss, each loss per step and recurrent states, without randomness."""
    for kind in (distributions.OneHot, distributions.Categorical):
        monkeypatch.setattr(kind, "sample", lambda self, u: self.pred())
    middle = lambda self, u: self.mean + 0.5 * self.stddev  # noqa: E731
    monkeypatch.setattr(distributions.BoundedNormal, "sample", middle)
    expected = dict(np.load(GOLDEN / "expected.npz"))
    agent = dreamerv3.load(converted).agent
    data = {k[6:]: v for k, v in expected.items() if k.startswith("batch/")}
    data["dyn/stoch"] = data["dyn/stoch"].argmax(-1).astype(np.uint8)
    data = batches.select(data, agent.model.batch_keys)
    model = agent.model

    @jax.jit
    def compute(state, carry, data, key):
        seq, rows = model.sequence(carry, data), data[batches.ROWS]
        world, latent, _ = model.world_loss(state.params, seq, rows, key)
        args = (state.params, state, seq, latent, rows, key)
        behavior = model.behavior_loss(*args)[0]
        total = model.loss(state.params, state, seq, rows, key)[0]
        return total, world | behavior, latent.deter

    total, losses, deter = compute(agent.state, agent.model.carry(3), data, agent.key)
    for key in ("policy", "value"):  # [H, N] here, averaged over time there.
        losses[key] = losses[key].mean(0).reshape(3, 6)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
    close(total, expected["loss"])
    close(deter, expected["deter"])
    found = {f"loss/{key}" for key in losses}
    assert found == {key for key in expected if key.startswith("loss/")}
    for key, value in losses.items():
        close(value, expected[f"loss/{key}"], err_msg=key)


def test_the_optimiser_continues(converted, tensors):
    """An update goes by the second moment and momentum of the public tensors."""
    agent = dreamerv3.load(converted).agent
    state = read_item(converted / "ckpt" / "agent", "agent", agent.codec)
    agent.load(state)
    state, opt = agent.fetch(), agent.model.opt
    assert int(state.opt[1].step) == int(state.opt[2].count) == int(state.step) == 3
    g = 1e-9  # Too small to be clipped.
    grads = jax.tree.map(lambda x: np.full(x.shape, g, np.float32), state.params)
    updates = params.flatten(opt.update(grads, state.opt, state.params)[0])
    public = names.public_names(state.params)
    for path, update in updates.items():
        mu, nu = (
            tensors[f"{prefix}/{public[path]}"]
            for prefix in (names.MOMENTUM, names.SECOND_MOMENT)
        )
        root = np.sqrt((0.999 * nu + 0.001 * g**2) / (1 - 0.999**4))
        mu = 0.9 * mu + 0.1 * g / (root + 1e-20)
        expected = -0.01 * mu / (1 - 0.9**4)  # Warm-up ended after two updates.
        np.testing.assert_allclose(update, expected, 1e-4, 1e-8, err_msg=path)


def test_slow_critic_range_and_counters(converted, tensors):
    agent = dreamerv3.load(converted).agent
    state = read_item(converted / "ckpt" / "agent", "agent", agent.codec)
    slow = tensors["slowval/head/logits/kernel"]
    np.testing.assert_array_equal(state["slow/out/linears/0/kernel"], slow)
    assert not np.array_equal(slow, tensors["val/head/logits/kernel"])
    assert state["norm/lo"] == tensors["retnorm/lo/value"]
    assert state["norm/hi"] == tensors["retnorm/hi/value"]
    learner = read_item(converted / "ckpt" / "agent", "learner")
    assert learner == {"updates": 3, "step": 1234}


def test_it_acts_and_is_exported(converted, tmp_path):
    agent = dreamerv3.load(converted)
    assert agent.step == 1234
    env = agent.make_env()
    action = agent.reset()
    for _ in range(3):
        action = agent.act(env.step(action))
    env.close()
    assert set(action) == {"act_disc", "act_cont", "reset"}
    export.run([str(converted), "-o", str(tmp_path / "policy.zip")])
    with zipfile.ZipFile(tmp_path / "policy.zip") as archive:
        assert json.loads(archive.read("policy.json"))["step"] == 1234


def test_a_serial_run_resumes(converted, tmp_path):
    path = shutil.copytree(converted, tmp_path / "run")
    argv = ["--logdir", str(path), "--script", "train", "--run.steps", "1280"]
    main.main([*argv, "--run.env_processes", "False", *FEW])
    learner = read_item(path / "ckpt" / "agent", "learner")
    assert learner["step"] == 1280
    assert learner["updates"] > 3
    agent = dreamerv3.load(path).agent
    state = read_item(path / "ckpt" / "agent", "agent", agent.codec)
    assert state["step"] == state["opt/1/step"] == learner["updates"]
    first = json.loads((path / "metrics.jsonl").read_text().splitlines()[0])
    assert first["step"] > 1234


@pytest.mark.slow
def test_a_parallel_run_resumes(converted, tmp_path):
    path = shutil.copytree(converted, tmp_path / "run")
    main.main(["--logdir", str(path), "--run.steps", "1400", *FEW])
    learner = read_item(path / "ckpt" / "agent", "learner")
    assert learner["step"] == 1400
    assert learner["updates"] > 3
    replay = read_item(path / "ckpt" / "replay", "replay")
    assert replay["replay"]["order"] == 1400


def test_parallel_layout(public, tmp_path, capsys):
    """It has no step beside the agent: 3 updates of 3 x 6 steps at a ratio of 32."""
    make_parallel(public)
    convert.run([str(public), str(tmp_path / "new")])
    assert dreamerv3.load(tmp_path / "new").step == 3 * 3 * 6 // 32
    assert "estimated" in capsys.readouterr().out
    convert.run([str(public), str(tmp_path / "given"), "--step", "99"])
    assert dreamerv3.load(tmp_path / "given").step == 99


@pytest.mark.parametrize("folder", ["ckpt", "ckpt/agent"])
def test_the_folder_of_all_checkpoints_will_do(public, tmp_path, folder):
    if folder != "ckpt":
        make_parallel(public)
    convert.run([str(public / folder), str(tmp_path / "new"), "--step", "7"])
    assert dreamerv3.load(tmp_path / "new").step == 7


@pytest.mark.parametrize(
    ("start", "key"),
    [
        (lambda path, new: main.main(["--logdir", path]), "logdir"),
        (lambda path, new: dreamerv3.load(path), "logdir"),
        (lambda path, new: cli.dispatch(["eval", path]), "logdir"),
        (
            lambda path, new: main.main(
                ["--configs", "debug", "--logdir", new, "--run.from_checkpoint", path]
            ),
            "run.from_checkpoint",
        ),
    ],
)
def test_a_public_run_is_answered_with_the_command(tmp_path, start, key):
    """And not with what is wrong about each of its settings."""
    with pytest.raises(ConfigError) as error:
        start(str(PUBLIC), str(tmp_path))
    (problem,) = error.value.problems
    assert problem.key == key
    assert f"dreamerv3 convert {PUBLIC} NEW_LOGDIR" in problem.remedy


def test_the_folder_of_a_checkpoint_will_do(public, tmp_path, capsys):
    (public / "ckpt" / "latest").unlink()
    convert.run([str(public / "ckpt" / STAMP), str(tmp_path / "new")])
    out = capsys.readouterr().out
    assert "Step 1,234, 3 updates, 21,319 parameters." in out
    assert "jax.*" in out
    assert treefile.read(complete(tmp_path / "new/ckpt/agent")[-1] / "step") == 1234


def test_all_tensors_that_do_not_fit_are_named(public, tmp_path):
    def change(agent):
        tensors = agent["params"]
        del tensors["dyn/dyngru/bias"]
        tensors["enc/mlp0/kernel"] = tensors["enc/mlp0/kernel"][:-1]
        tensors["other/kernel"] = np.zeros(2)

    rewrite(public, change)
    with pytest.raises(CheckpointError) as error:
        convert.run([str(public), str(tmp_path / "new")])
    text = str(error.value)
    assert "3 tensors do not match" in text
    assert "dyn/dyngru/bias: missing, needed for params/dyn/dyngru/bias (48,)" in text
    assert (
        "enc/mlp0/kernel: (307, 6), but params/enc/mlp/layers/0/linear/kernel has "
        "(308, 6)"
    ) in text
    assert "other/kernel: (2,), unexpected" in text
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (names.SCALINGS[0], np.zeros(2), r"opt/state/1/0: \(2,\), but opt/1/step has"),
        (names.SCALINGS[1], np.array(9), "differ, but must be equal"),
        ("\x1b[2J", np.zeros(2), r"'\\x1b\[2J' is no array"),
        (7, np.zeros(2), "int is no array"),
    ],
)
def test_tensors_that_are_no_part_of_an_agent(public, tmp_path, path, value, words):
    rewrite(public, lambda agent: agent["params"].update({path: value}))
    with pytest.raises(CheckpointError, match=words):
        convert.run([str(public), str(tmp_path / "new")])


def test_code_that_the_settings_name_is_not_executed(public, tmp_path, monkeypatch):
    """A public task is no file of Python; a directory from a stranger may name one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("open('trace', 'w')\n")
    path = public / "config.yaml"
    path.write_text(path.read_text().replace("task: dummy_disc", "task: own.py:Env"))
    with pytest.raises(ConfigError, match=r"task = own\.py:Env: names code .* --task"):
        convert.run([str(public), str(tmp_path / "new")])
    assert not (tmp_path / "trace").exists()


def test_an_environment_of_ones_own(public, tmp_path):
    """One without the images of the public one names the tensors left over."""
    source = (
        "from embodied.envs.dummy import Dummy\n"
        "class Same(Dummy):\n"
        "    pass\n"
        "class Other(Dummy):\n"
        "    @property\n"
        "    def obs_space(self):\n"
        "        return {k: v for k, v in super().obs_space.items() if k != 'image'}\n"
    )
    (tmp_path / "own.py").write_text(source)
    task = f"{tmp_path / 'own.py'}:"
    convert.run([str(public), str(tmp_path / "new"), "--task", f"{task}Same"])
    assert dreamerv3.load(tmp_path / "new").config.task == f"{task}Same"
    with pytest.raises(CheckpointError, match=r"dec/imgout/kernel: .*unexpected"):
        convert.run([str(public), str(tmp_path / "other"), "--task", f"{task}Other"])


def test_settings_that_are_not_implemented(public, tmp_path):
    path = public / "config.yaml"
    path.write_text(path.read_text().replace("act: silu", "act: gelu"))
    with pytest.raises(
        ConfigError, match=r"agent\.dyn\.rssm\.act = gelu: is fixed to silu"
    ):
        convert.run([str(public), str(tmp_path / "new")])
    assert not (tmp_path / "new").exists()


def drop(*names):
    def change(public):
        for name in names:
            path = public / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def put(name, content):
    return lambda public: (public / name).write_bytes(content)


def count(updates):
    def change(agent):
        agent["counters"]["updates"] = updates

    return lambda public: rewrite(public, change)


def setting(line, other):
    def change(public):
        path = public / "config.yaml"
        text = path.read_text()
        assert line in text
        path.write_text(text.replace(line, other))

    return change


def cut(public):
    path = public / "ckpt" / STAMP / "agent.pkl"
    path.write_bytes(path.read_bytes()[:-1000])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (drop("config.yaml"), "there is no config.yaml"),
        (drop("ckpt"), "latest"),
        (drop("ckpt/latest"), "latest"),
        (drop(f"ckpt/{STAMP}"), "without agent.pkl and done"),
        (drop(f"ckpt/{STAMP}/done"), "without done"),
        (drop(f"ckpt/{STAMP}/agent.pkl"), "without agent.pkl"),
        (cut, "truncated or damaged"),
        (drop("config.yaml", "ckpt"), "latest"),
        (lambda p: rewrite(p, lambda agent: agent.pop("counters")), "it has 'params'"),
        (count(-1), "'updates' is no number from 0"),
        (count(10**5000), "'updates' is no number from 0"),
        (put("ckpt/latest", b"\xff"), "without agent.pkl and done"),
        (put(f"ckpt/{STAMP}/step.pkl", pickle.dumps(-1)), "no number of steps from 0"),
        (lambda p: shutil.rmtree(p), "is not a directory"),
        (setting("bspace: 8", "bspace: 5"), "change agent.dec.simple.bspace"),
    ],
)
def test_bad_files_are_one_line(public, tmp_path, change, words, monkeypatch, capsys):
    change(public)
    argv = ["dreamerv3", "convert", str(public), str(tmp_path / "new")]
    monkeypatch.setattr("sys.argv", argv)
    with pytest.raises(SystemExit) as exit_:
        cli.cli()
    assert exit_.value.code
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert words in lines[0]
    assert not (tmp_path / "new").exists()


def test_another_run_is_not_overwritten(converted):
    with pytest.raises(convert.CommandError, match="already exists"):
        convert.run([str(PUBLIC), str(converted)])
