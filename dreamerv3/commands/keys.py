"""`dreamerv3 keys`: make the keys of a run over a network."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from dreamerv3.commands.base import CommandError, run_module
from embodied import rpc
from embodied.run.parallel import run_keys

EXAMPLE = """\
example:
  dreamerv3 keys ~/keys
  dreamerv3 --run.key_dir ~/keys --run.coordinator_addr tcp://10.0.0.5:7000 …
  dreamerv3 join 10.0.0.5:7000 --key env.json env …           on another machine

A machine that runs environments needs env.json alone, which reaches nothing but
coordinator and actor; a further host of the learner needs learner.json. One that runs
the replay or the logger needs core.json and server.json. Existing keys are kept.
"""


def run(argv: Sequence[str]) -> None:
    """Make keys in a directory, or keep those that are there."""
    parser = argparse.ArgumentParser(
        prog="dreamerv3 keys",
        description="Make the keys that roles on several machines need.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("directory", help="where to; made if it is not there")
    directory = parser.parse_args(argv).directory
    try:
        keys = rpc.make_keys(directory, run_keys.CLIENTS)
    except (OSError, rpc.KeyFileError) as error:
        raise CommandError(str(error)) from None
    files = ", ".join(f"{name}.json" for name in keys.clients)
    print(f"{directory} holds server.json, {files} of {keys.server.public}")
    print("Copy env.json to machines with environments and learner.json to other hosts")
    print("of the learner; there, run dreamerv3 join HOST:PORT --key FILE ROLE.")


if __name__ == "__main__":
    run_module(__file__)
