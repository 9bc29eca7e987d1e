"""`dreamerv3 view`: a page in the browser with the curves and videos of runs."""

from __future__ import annotations

import argparse
import webbrowser
from collections.abc import Sequence
from functools import partial as bind

from dreamerv3.commands.base import CommandError, listen, run_module
from dreamerv3.viewing import cache, published, runs
from dreamerv3.viewing.local import LOOPBACK
from dreamerv3.viewing.server import Server
from dreamerv3.viewing.store import Store

EXAMPLE = """example:
  dreamerv3 view logdir                 all runs below logdir
  dreamerv3 view 'logdir/pong-*' --port 9000

The page is served to this machine only. To look from another one:
  ssh -L 8765:localhost:8765 MACHINE    then open http://localhost:8765 there"""


def run(argv: Sequence[str]) -> None:
    """Serve until Ctrl-C."""
    args = parser().parse_args(argv)
    for place in args.logdir:
        if not runs.exists(place):
            raise CommandError(f"{place} does not exist; give a log directory")
    with published.overlay(args.logdir, args.published) as places:
        serve(args, places)


def serve(args: argparse.Namespace, places: Sequence[str]) -> None:
    """Serve runs at some places until Ctrl-C."""
    kept = None if args.no_cache else cache.directory()
    if kept:
        cache.forget_unused(kept)
    store = Store(places, kept)
    server = listen(bind(Server, store), args.port)
    store.start()
    address = f"http://{LOOPBACK}:{server.server_address[1]}"
    amount = len(store.all())
    print(f"{amount} {'run' if amount == 1 else 'runs'} at {address} (Ctrl-C ends)")
    if args.open:
        webbrowser.open(address)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        server.server_close()
        store.close()


def parser() -> argparse.ArgumentParser:
    """What can be typed."""
    result = argparse.ArgumentParser(
        prog="dreamerv3 view",
        description="Look at runs in the browser, also while they train.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    result.add_argument(
        "logdir", nargs="+", help="log directories, directories of them, or patterns"
    )
    result.add_argument(
        "--port",
        type=int,
        default=8765,
        help="port to listen on; 0 takes a free one (8765)",
    )
    result.add_argument("--open", action="store_true", help="open a browser")
    result.add_argument(
        "--no-cache",
        action="store_true",
        help="do not keep what was read in the user's cache directory",
    )
    result.add_argument("--published", action="store_true", help=published.HELP)
    return result


if __name__ == "__main__":
    run_module(__file__)
