"""The meaning of a metric is the first row of docs/metrics.md that matches it."""

from dreamerv3.viewing.glossary import entries, meaning, to_regex


def test_patterns():
    pattern = to_regex("{train,eval}/loss/*")
    assert pattern.fullmatch("eval/loss/image")
    assert not pattern.fullmatch("report/loss/image")
    assert not pattern.fullmatch("eval/loss/image/more")
    assert to_regex("a/**").fullmatch("a/b/c")


def test_meanings_are_plain_lines():
    assert meaning("episode/score").endswith(
        "This is the learning curve. Unit: reward."
    )
    assert meaning("eval/loss/dyn").startswith("KL of posterior and prior after free")
    assert meaning("eval/loss/image").startswith("Reconstruction of the observation")
    assert "Middle row" in meaning("report/openloop/image")
    assert meaning("logger/dropped/wandb").count("[") == 0
    assert meaning("my/own") == ""


def test_every_row_reads_by_itself():
    """Cards show one line alone, so none may refer to the one above it."""
    assert len(entries()) > 60
    for entry in entries():
        first = entry.text.split()[0]
        assert first not in ("Its", "The same", "That", "They"), entry
        assert not entry.text.startswith("The same "), entry
        assert entry.text.endswith("."), entry
