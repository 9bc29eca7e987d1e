"""A TCP proxy whose connections a test can cut, so that messages in them are lost."""

import contextlib
import socket
import threading


class Proxy:
    """Forwards connections to a server; what is in flight when cut, is gone."""

    def __init__(self, target):
        host, port = target.removeprefix("tcp://").split(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._sockets = []
        self._lock = threading.Lock()
        self.accepted = 0
        self.mute = False  # Whether bytes from the server are thrown away.
        self.swallowed = 0  # Bytes that were.
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        """Close all connections there are; new ones are welcome."""
        with self._lock:
            for each in self._sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self._sockets.clear()

    def close(self):
        self._listener.close()
        self.cut()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
            except OSError:
                return
            with self._lock:
                self.accepted += 1
                self._sockets += [client, server]
            for args in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pump, args=args, daemon=True).start()

    def _pump(self, source, target, is_reply):
        with contextlib.suppress(OSError), source, target:
            while data := source.recv(1 << 16):
                if is_reply and self.mute:
                    self.swallowed += len(data)
                else:
                    target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)
