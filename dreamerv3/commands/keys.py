"""`dreamerv3 keys`: make the keys of a run over a network."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from dreamerv3.commands.base import CommandError
from embodied import rpc

EXAMPLE = """\
example:
  dreamerv3 keys ~/keys          on one machine; then copy the directory to the others
  dreamerv3 --run.key_dir ~/keys --run.actor_addr tcp://10.0.0.5:7001 …

Machines that only run environments need client.json alone; one that runs the replay or
the logger needs server.json, too. Keys that are there already are left as they are.
"""


def main(argv: Sequence[str]) -> None:
    """Make keys in a directory, or leave those that are there."""
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
        keys = rpc.make_keys(directory)
    except (OSError, rpc.KeyFileError) as error:
        raise CommandError(str(error)) from None
    print(f"{directory} holds server.json and client.json of {keys.server.public}")
