"""Tracebacks of user code, without the frames of this project."""

from __future__ import annotations

import pathlib
import traceback

ROOT = pathlib.Path(__file__).parents[2]
OURS = (f"{ROOT}/embodied/", f"{ROOT}/dreamerv3/", "<frozen importlib")


def user_traceback(error: BaseException) -> str:
    """The traceback from the first frame of user code on."""
    told = traceback.TracebackException.from_exception(error)
    kept = [frame for frame in told.stack if not _ours(frame.filename)]
    if kept:
        told.stack = traceback.StackSummary.from_list(kept)
    told.__context__ = None
    told.__suppress_context__ = True
    return "".join(told.format()).rstrip()


def _ours(filename: str) -> bool:
    return filename.startswith(OURS)
