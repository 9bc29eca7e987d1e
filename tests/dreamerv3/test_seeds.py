"""The product's own factories, as the documents of docs/seeds.md use them."""

import inspect
import json
import sys
import types

import av
import elements
import numpy as np
import pytest

import embodied
from dreamerv3 import agent as agent_module
from dreamerv3 import environments, main, outputs
from dreamerv3.main import make_logger
from dreamerv3.settings import config as settings
from embodied.core.clock import Every

# What those documents say that the launcher reads.
ARGS = """
actor_addr replay_addr logger_addr actor_batch agent_process envs eval_envs remote_envs
remote_replay
"""


def make_config(logdir, **changes):
    flat = settings.read_blocks().defaults | {"logdir": str(logdir)}
    return settings.to_config(
        flat | {k.replace("__", "."): changes[k] for k in changes}
    )


def rows(logdir):
    return [json.loads(line) for line in (logdir / "metrics.jsonl").open()]


def test_signatures():
    assert list(inspect.signature(make_logger).parameters) == ["config"]
    report = inspect.signature(agent_module.Agent.report)
    assert list(report.parameters) == ["self", "carry", "data"]


def test_the_example_of_the_logger(tmp_path):
    config = make_config(tmp_path, logger__outputs=("terminal", "jsonl"))
    logger = make_logger(config)
    # Add metrics and write
    logger.add({"loss/dyn": 0.5, "loss/rep": 0.3}, prefix="train")
    logger.add({"score": 42.0, "length": 1000}, prefix="episode")
    logger.write()
    # Close when done
    logger.close()
    assert isinstance(logger, elements.Logger)
    assert isinstance(logger.step, elements.Counter)
    assert [output.name for output in logger.outputs] == ["terminal", "jsonl"]
    merged = {key: value for row in rows(tmp_path) for key, value in row.items()}
    assert (merged["train/loss/dyn"], merged["train/loss/rep"]) == (0.5, 0.3)
    assert (merged["episode/score"], merged["episode/length"]) == (42.0, 1000)


def test_the_settings_of_the_document_are_enough_for_a_logger(tmp_path, capsys):
    names = ["terminal", "jsonl", "media", "tensorboard", "scope"]
    options = {"outputs": names, "filter": "score", "fps": 15}
    logger = make_logger(elements.Config(logdir=str(tmp_path), logger=options))
    logger.add({"score": 42.0, "length": 1000}, prefix="episode")
    logger.close()
    printed = capsys.readouterr().out
    assert "score 42" in printed
    assert "failed" not in printed
    assert rows(tmp_path)[0]["episode/score"] == 42.0
    with pytest.raises(settings.ConfigError, match="logdir = '': is missing"):
        make_logger(elements.Config(logger=options))


def test_the_example_of_the_report(kit, tmp_path):
    agent, step = kit.agent(), 100
    logger = make_logger(make_config(tmp_path, logger__outputs=("jsonl", "media")))
    args = elements.Config(report_batches=2)
    carry_report = agent.init_report(kit.batch_size)
    stream_report = agent.stream(iter([kit.batch(agent, seed) for seed in range(2)]))
    should_report = Every(100)
    # During training loop
    if should_report(step):
        agg = elements.Agg()
        for _ in range(args.report_batches):
            carry_report, mets = agent.report(carry_report, next(stream_report))
            agg.add(mets)
        logger.add(agg.result(), prefix="report")
    logger.close()
    assert mets["openloop/image"].dtype == np.uint8
    assert np.isfinite(rows(tmp_path)[0]["report/loss/total"])
    (video,) = (tmp_path / "media" / "report" / "openloop" / "image").iterdir()
    assert video.suffix == ".mp4"


REDUCTIONS = {"sum": 6.0, "avg": 2.0, "max": 3.0, "stack": [1.0, 2.0, 3.0]}


def test_reductions_of_metrics(tmp_path):
    config = make_config(tmp_path, logger__outputs=("tensorboard", "jsonl"))
    logger, agg = make_logger(config), elements.Agg()
    for value in (1.0, 2.0, 3.0):
        for name in REDUCTIONS:
            agg.add(name, value, agg=name)
    result = agg.result()
    assert {k: np.asarray(v).tolist() for k, v in result.items()} == REDUCTIONS
    logger.add(result, prefix="reduced")
    logger.close()
    (row,) = rows(tmp_path)
    assert (row["reduced/sum"], row["reduced/avg"], row["reduced/max"]) == (6, 2, 3)


def test_filter_and_fps(tmp_path, capsys):
    changes = {"logger__filter": "^shown", "logger__fps": 7}
    config = make_config(tmp_path, logger__outputs=("terminal", "media"), **changes)
    logger = make_logger(config)
    logger.add({"shown": 1.0, "hidden": 2.0, "film": np.zeros((3, 8, 8, 3), np.uint8)})
    logger.close()
    lines = capsys.readouterr().out
    assert "shown" in lines
    assert "hidden" not in lines
    (video,) = (tmp_path / "media" / "film").iterdir()
    with av.open(str(video)) as container:
        assert container.streams.video[0].average_rate == 7


@pytest.mark.parametrize("name", ["Wandb", "Expa"])
def test_outputs_of_other_packages(tmp_path, monkeypatch, name):
    made = []

    class Output:
        def __init__(self, *args, **options):
            made.append((args, options))

        def __call__(self, summaries):
            made.extend(summaries)

    module = types.ModuleType(f"embodied.metrics.{name.lower()}")
    setattr(module, f"{name}Output", Output)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(outputs, "_installed", lambda package: True)
    url = {"logger__expa__url": "http://localhost:1/api"}
    config = make_config(tmp_path, logger__outputs=(name.lower(),), **url)
    logger = make_logger(config)
    logger.add({"score": 42.0}, prefix="episode")
    logger.close()
    (args, options), (step, key, value) = made
    assert dict(config.flat) in args
    assert options == dict(config.logger[name.lower()])
    assert (step, key, value) == (0, "episode/score", 42.0)


def test_the_script_parallel_is_the_launcher(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(main.parallel, "combined", lambda *args: calls.append(args))
    flags = ["--configs", "debug", "--script", "parallel", "--logdir", str(tmp_path)]
    flags += ["--random_agent", "True"]
    config = environments.read_config("dummy_disc", flags)
    spaces, _ = main.look(config)
    main.dispatch(config, *spaces)
    ((agent, train, held_out, env, env_eval, stream, logger, args),) = calls
    replays = [train(), held_out()]
    batches = [stream(replays[0], mode) for mode in ("train", "report")]
    assert all(isinstance(each, embodied.Stream) for each in batches)
    assert set(agent().obs_space) == set(env(0).obs_space) == set(env_eval(2).obs_space)
    assert isinstance(logger(), elements.Logger)
    assert set(ARGS.split()) <= set(vars(args))
    for replay in replays:
        replay.close()
