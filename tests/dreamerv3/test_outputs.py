"""Outputs by name: what is missing is told before a run, the rest is made."""

import json
import pathlib
import re
import sys

import elements
import numpy as np
import pytest

from dreamerv3 import outputs
from dreamerv3.main import make_logger
from dreamerv3.settings import config as settings
from embodied import metrics

ROOT = pathlib.Path(__file__).parents[2]


def values(**changes):
    flat = settings.read_blocks().defaults
    return {**flat, **{key.replace("__", "."): v for key, v in changes.items()}}


@pytest.mark.parametrize("name", outputs.EXTRAS)
def test_a_missing_package(name, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, name, None)
    (problem,) = outputs.check(values(logger__outputs=("jsonl", name)))
    assert (problem.key, problem.value) == ("logger.outputs", name)
    line = f"pip install 'dreamerv3-distributed[{name}]', or choose from"
    assert problem.remedy.startswith(line)


def test_make_logger_rejects_outputs_that_cannot_be_made(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    names = ("jsonl", "wandb", "tensorbord")
    config = values(logdir=str(tmp_path), logger__outputs=names)
    with pytest.raises(settings.ConfigError) as info:
        make_logger(settings.to_config(config))
    missing, unknown = str(info.value).splitlines()
    assert missing.startswith("logger.outputs = wandb: its package is missing; ")
    assert "pip install 'dreamerv3-distributed[wandb]'" in missing
    assert unknown.startswith("logger.outputs = tensorbord: there is no such output; ")
    for line in (missing, unknown):
        choices = line.partition("choose from ")[2]
        assert set(re.findall(r"\w+", choices)) >= set(outputs.OUTPUTS)
        assert choices.endswith("with the extra of that name wandb, mlflow, expa")
    assert not list(tmp_path.iterdir())


def test_a_folder_is_not_a_package(tmp_path, monkeypatch):
    (tmp_path / "not_a_package").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not outputs._installed("not_a_package")
    assert outputs._installed("json")


def test_a_missing_address():
    pytest.importorskip("expa")
    (problem,) = outputs.check(values(logger__outputs=("expa",)))
    assert problem.key == "logger.expa.url"
    url = "http://localhost:8000/api"
    assert not outputs.check(values(logger__outputs=("expa",), logger__expa__url=url))


def test_the_default_outputs_need_nothing():
    assert not outputs.check(values())
    assert values()["logger.outputs"] == ("terminal", "jsonl", "media")


def test_make_logger(tmp_path, capsys):
    names = ("terminal", "jsonl", "media", "tensorboard", "scope")
    changes = {"logdir": str(tmp_path), "logger__outputs": names}
    logger = make_logger(settings.to_config(values(**changes)))
    assert isinstance(logger, elements.Logger)
    logger.step.increment(7)
    logger.add({"score": 42.0, "length": 1000}, prefix="episode")
    logger.add({"image": np.zeros((3, 8, 8, 3), np.uint8)}, prefix="report/openloop")
    logger.write()
    logger.close()
    assert "step 7  0:00  score 42  length 1,000 steps" in capsys.readouterr().out
    row = json.loads((tmp_path / "scores.jsonl").read_text())
    assert (row["step"], row["episode/score"]) == (7, 42.0)
    assert (tmp_path / "media/report/openloop/image/000000000007.mp4").exists()
    assert (tmp_path / "scope/report-openloop-image.mp4/index").exists()
    assert list(tmp_path.glob("events*"))


def test_the_example_of_the_docs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "logging.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(code, "docs/logging.md", "exec"), {})
    assert (tmp_path / "best.txt").read_text() == "3.0\n"
    assert (tmp_path / "logdir/mine/scores.jsonl").exists()


def test_the_docs_name_every_output():
    page = (ROOT / "docs" / "logging.md").read_text()
    for name in outputs.OUTPUTS:
        assert f"| `{name}` |" in page
        assert f"**{name}**" in page


def test_what_a_run_waits_for():
    def waiting(status, **changes):
        return outputs._waiting(settings.to_config(values(**changes)), status)

    compiles = "compiling, about a minute on a CPU"
    status = metrics.Status(steps=100)
    assert waiting(status) == f"for the first steps; {compiles}"
    assert "recorded steps" in waiting(status, script="train_offline")
    assert "4 episodes" in waiting(status, script="eval_only")
    assert waiting(status, random_agent=True) == "for the first steps"
    status.add([(7, "fps/train", 0.0)])
    assert waiting(status) == f"for the first updates; {compiles}"
    assert waiting(status, random_agent=True) == ""
    status.add([(9, "fps/train", 3.0)])
    assert waiting(status) == ""
