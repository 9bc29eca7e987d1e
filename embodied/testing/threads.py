"""A whole parallel run in one process: every role is a thread."""

from __future__ import annotations

import dataclasses

from embodied.run.parallel import launch
from embodied.run.settings import Given, RunSettings


def run_in_threads(make: launch.Factories, args: Given) -> str:
    """What `combined` does, with threads for processes; returns why the run ended.

    Sockets, supervision, checkpoints and the order of shutdown are those of a run in
    processes. Nothing is pickled, so a test can hold on to what the factories make.
    """
    args = launch.resolve(RunSettings.of(args))
    roles = launch.make_roles(make, args)
    threads = [dataclasses.replace(role, thread=True) for role in roles]
    return launch.run(threads, args)
