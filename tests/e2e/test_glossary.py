"""The glossary of metrics and what a real run emits, compared both ways."""

import subprocess
import sys

import pytest

from dreamerv3.viewing.glossary import entries, meaning, to_regex


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


@pytest.mark.slow
def test_every_metric_has_an_entry(names):
    unknown = [name for name in names if not meaning(name)]
    assert not unknown, sorted(unknown)


@pytest.mark.slow
def test_every_entry_is_emitted(names):
    promised = [entry.pattern for entry in entries() if entry.when == "always"]
    missing = [p for p in promised if not any(map(to_regex(p).fullmatch, names))]
    assert len(promised) > 40
    assert not missing
