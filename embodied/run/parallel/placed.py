"""Supervises roles that were not started by the launcher of their run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import elements

from embodied.process.supervisor import ASKED, LOST, Role, Supervisor
from embodied.run.settings import RunSettings


def place(
    name: str,
    target: Callable[..., None],
    target_args: tuple,
    args: RunSettings,
    hang: float = 60.0,
    essential: bool = True,
) -> None:
    """Run one role, restarting it on failure, until the run ends or on a signal."""
    role = Role(
        name,
        target,
        target_args,
        budget=args.budget,
        hang=hang,
        grace=args.stop_timeout,
        essential=essential,
    )
    supervise([role])


def supervise(roles: Sequence[Role]) -> str:
    """Run roles until one returns, as the run has ended; returns why they ended."""
    supervisor = Supervisor(roles)
    reason = supervisor.run()
    names = roles[0].name if len(roles) == 1 else f"{len(roles)} processes"
    text = reason if reason in (ASKED, LOST) else "the run has ended"
    elements.print(f"Ended {names}: {text}.", flush=True)
    return reason
