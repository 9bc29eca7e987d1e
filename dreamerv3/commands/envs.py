"""`dreamerv3 envs`: every suite, whether it is installed, and how to install it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from dreamerv3.commands.base import run_module
from embodied.envs import registry

EPILOG = """\
example:
  dreamerv3 envs
  dreamerv3 --task bounce_32 --configs size1m
"""


def run(argv: Sequence[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        "dreamerv3 envs",
        description="List the suites: --task SUITE_NAME trains on one of its tasks.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(argv)
    print(table(registry.suites()))


def table(suites: dict[str, registry.Suite]) -> str:
    """One line a suite, and below it the install line if something is missing."""
    width = max(map(len, suites))
    lines = []
    for name, suite in suites.items():
        missing = registry.missing_packages(suite)
        state = "missing  " if missing else "installed"
        lines.append(f"{name.ljust(width)}  {state}  {suite.about}")
        if missing:
            lines.append(f"{'':{width}}             {registry.install_line(suite)}")
    return "\n".join(lines)


if __name__ == "__main__":
    run_module(__file__)
