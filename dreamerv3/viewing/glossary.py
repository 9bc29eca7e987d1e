"""What each metric means: the tables of docs/metrics.md, which is in this package."""

from __future__ import annotations

import functools
import pathlib
import re
from typing import NamedTuple

FILE = pathlib.Path(__file__).parent / "metrics.md"
PARTS = {"*": "[^/]+", "**": ".+"}
UNITLESS = ("\N{EN DASH}", "text", "video")
LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


class Entry(NamedTuple):
    """A row of the tables."""

    pattern: str
    unit: str
    text: str
    when: str  # `always`, or the condition under which it is written.


@functools.cache
def entries() -> list[Entry]:
    """All rows, the first that matches a name counts."""
    rows = FILE.read_text().splitlines()
    cells = [row.split("|")[1:-1] for row in rows if row.startswith("| `")]
    return [Entry(row[0].strip(" `"), *map(str.strip, row[1:])) for row in cells]


@functools.lru_cache(maxsize=100_000)
def meaning(name: str) -> str:
    """A line about a metric; empty for one that is not ours."""
    for entry in entries():
        if to_regex(entry.pattern).fullmatch(name):
            text = LINK.sub(r"\1", entry.text).replace("`", "")
            bare = entry.unit in UNITLESS
            return text if bare else f"{text} Unit: {entry.unit}."
    return ""


@functools.cache
def to_regex(pattern: str) -> re.Pattern[str]:
    """Names that a pattern stands for: * is a part, ** several, {a,b} either."""
    words = re.split(r"(\*\*|\*|\{[^}]*\})", pattern)
    return re.compile("".join(map(_word, words)))


def _word(word: str) -> str:
    if word.startswith("{"):
        return f"(?:{'|'.join(map(re.escape, word[1:-1].split(',')))})"
    return PARTS.get(word, re.escape(word))
