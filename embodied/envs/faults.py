"""Tracebacks of people's own code, without the frames of ours."""

from __future__ import annotations

import pathlib
import traceback

ROOT = pathlib.Path(__file__).parents[2]
OURS = (f"{ROOT}/embodied/", f"{ROOT}/dreamerv3/", "<frozen importlib")


def user_traceback(error: BaseException) -> str:
    """What went wrong, told from the first frame that is not ours."""
    told = traceback.TracebackException.from_exception(error)
    kept = [frame for frame in told.stack if not _ours(frame.filename)]
    if kept:
        told.stack = traceback.StackSummary.from_list(kept)
    told.__context__ = None
    told.__suppress_context__ = True
    return "".join(told.format()).rstrip()


def _ours(filename: str) -> bool:
    return filename.startswith(OURS)
