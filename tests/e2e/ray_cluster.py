"""A Ray cluster for tests: real nodes, which are processes of this machine."""

import contextlib
import shutil
import sys
import tempfile

import psutil

from embodied import rpc
from tests.e2e.command import Command, wait_for

RAY = (sys.executable, "-m", "ray.scripts.scripts")
ENV = {"RAY_AUTH_MODE": "disabled"}  # Whatever tokens the user has for other clusters.


class Cluster:
    """Nodes of a Ray cluster, of which one can be lost."""

    def __init__(self, directory):
        # Sockets of Ray live there, and their paths may not be long.
        self.temporary = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
        self.directory = directory
        self.nodes = []

    def start(self, cpus=2):
        port = rpc.resolve("tcp://127.0.0.1:{auto}").rpartition(":")[2]
        self.address = f"127.0.0.1:{port}"
        flags = ["--head", "--port", port, "--temp-dir", self.temporary]
        self.add(
            *flags, "--include-dashboard", "false", "--disable-usage-stats", cpus=cpus
        )

    def add(self, *flags, cpus=2):
        flags = [*flags, "--node-ip-address", "127.0.0.1", "--num-cpus", cpus]
        output = self.directory / f"node{len(self.nodes)}.txt"
        node = Command(output, "start", *flags, "--block", program=RAY, env=ENV)
        self.nodes.append(node)
        wait_for(lambda: "Ray runtime started" in node.text(), "node", [node])
        return node

    def lose(self, node):
        """A machine that loses its power."""
        process = psutil.Process(node.process.pid)
        for each in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):  # It died with another.
                each.kill()
        node.process.wait(30)

    def close(self):
        for node in self.nodes:
            if node.process.poll() is None:
                self.lose(node)
        shutil.rmtree(self.temporary, ignore_errors=True)


def ancestors(pid):
    try:
        return {process.pid for process in psutil.Process(pid).parents()}
    except psutil.NoSuchProcess:
        return set()
