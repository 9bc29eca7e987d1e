"""The glossary of metrics and what a real run emits, compared both ways."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PARTS = {"*": "[^/]+", "**": ".+"}


def glossary():
    """Pattern to when it is emitted."""
    rows = (ROOT / "docs" / "metrics.md").read_text().splitlines()
    cells = [row.split("|")[1:-1] for row in rows if row.startswith("| `")]
    return {name.strip(" `"): when.strip() for name, _, _, when in cells}


def to_regex(pattern):
    words = re.split(r"(\*\*|\*|\{[^}]*\})", pattern)
    return re.compile("".join(map(_word, words)))


def _word(word):
    if word.startswith("{"):
        return f"(?:{'|'.join(map(re.escape, word[1:-1].split(',')))})"
    return PARTS.get(word, re.escape(word))


def emitted(logdir):
    """Names of all metrics, of whatever kind."""
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    tags = accumulator.EventAccumulator(str(logdir)).Reload().Tags()
    texts = {tag.removesuffix("/text_summary") for tag in tags["tensors"]}
    kinds = (tags["scalars"], tags["images"], tags["histograms"], texts)
    return set().union(*kinds) - {"config"}


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """Of a short parallel run of the agent."""
    logdir = tmp_path_factory.mktemp("run")
    command = [sys.executable, "-m", "dreamerv3", "--configs", "debug"]
    command += ["--logdir", str(logdir), "--run.steps", "600"]
    command += ["--run.log_every", "2", "--run.report_every", "5"]
    command += ["--logger.outputs", "jsonl,tensorboard"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert result.returncode == 0, result.stdout + result.stderr
    return emitted(logdir)


def test_patterns():
    pattern = to_regex("{train,eval}/loss/*")
    assert pattern.fullmatch("eval/loss/image")
    assert not pattern.fullmatch("report/loss/image")
    assert not pattern.fullmatch("eval/loss/image/more")
    assert to_regex("a/**").fullmatch("a/b/c")


@pytest.mark.slow
def test_every_metric_has_an_entry(names):
    patterns = [to_regex(pattern) for pattern in glossary()]
    unknown = [n for n in names if not any(p.fullmatch(n) for p in patterns)]
    assert not unknown, sorted(unknown)


@pytest.mark.slow
def test_every_entry_is_emitted(names):
    promised = [p for p, when in glossary().items() if when == "always"]
    missing = [p for p in promised if not any(map(to_regex(p).fullmatch, names))]
    assert len(promised) > 40
    assert not missing
