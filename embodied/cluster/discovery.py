"""Queries a Ray cluster from a short-lived process, without side effects here."""

from __future__ import annotations

import functools
import importlib
import json
import logging
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

PATIENCE = 60.0  # Seconds for the answer of a cluster.


class Cluster(NamedTuple):
    """Facts about a cluster that is to run environments."""

    host: str  # IP address of this machine within the cluster.
    nodes: int  # Machines that are alive.
    resources: Mapping[str, dict[str, float]] = {}  # Of each, in Ray's names.


class AbsentError(Exception):
    """The cluster is unreachable; the message says why."""


@functools.cache
def look(address: str) -> Cluster:
    """The cluster at an address; `auto` is the one that this machine belongs to."""
    command = [sys.executable, "-m", __name__, address]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        raise AbsentError(f"it did not answer within {PATIENCE:g} s") from None
    if done.returncode:
        raise AbsentError(done.stderr.strip().splitlines()[-1])
    return Cluster(**json.loads(done.stdout.splitlines()[-1]))


def main(address: str) -> None:
    """Print what `look` returns."""
    ray: Any = importlib.import_module("ray")  # An extra.
    ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    alive = [node for node in ray.nodes() if node["Alive"]]
    # Several nodes may share a machine, as in tests.
    resources = {
        f"{node['NodeManagerAddress']} ({node['NodeID'][:6]})": node["Resources"]
        for node in alive
    }
    cluster = Cluster(ray.util.get_node_ip_address(), len(alive), resources)
    print(json.dumps(cluster._asdict()))


if __name__ == "__main__":
    main(sys.argv[1])
