"""A web server for browsers on this machine only."""

from __future__ import annotations

import abc
import http
import http.server
import pathlib
import re
import socketserver
import sys
import urllib.parse
from collections.abc import Callable
from typing import Any

LOOPBACK = "127.0.0.1"
HOSTS = ("127.0.0.1", "localhost", "[::1]")  # Any port, as a tunnel may change it.
TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}
SECURITY = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; "
    "style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

Query = dict[str, str]


class RefusedError(Exception):
    """A request that is not answered, with its status."""

    def __init__(self, status: http.HTTPStatus, reason: str):
        super().__init__(reason)
        self.status = status


class LocalServer(http.server.ThreadingHTTPServer):
    """Listens on this machine only, and serves the files of a folder."""

    daemon_threads = True

    def __init__(self, port: int, handler: type[LocalHandler], folder: pathlib.Path):
        super().__init__((LOOPBACK, port), handler)
        self.page = {
            path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()
        }

    def server_bind(self) -> None:
        """Bind without asking a name server for this machine's name."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore that a browser went away."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class LocalHandler(http.server.BaseHTTPRequestHandler, abc.ABC):
    """One connection of a browser."""

    protocol_version = "HTTP/1.1"
    server: LocalServer

    @abc.abstractmethod
    def answer(self, path: str, query: Query) -> None:
        """Answer a request; raises `RefusedError` if it cannot be answered."""

    def do_GET(self) -> None:
        try:
            check_origin(self.headers)
            url = urllib.parse.urlsplit(self.path)
            query = dict(urllib.parse.parse_qsl(url.query))
            self.answer(urllib.parse.unquote(url.path), query)
        except RefusedError as error:
            self.send(error.status, str(error).encode(), "text/plain")

    def __getattr__(self, name: str) -> Callable[[], None]:
        """Reject all methods but GET."""
        if name.startswith("do_"):
            return self._not_allowed
        raise AttributeError(name)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal belongs to the user."""

    def send_page(self, name: str) -> None:
        """Send a file of the page."""
        if name not in self.server.page:
            raise RefusedError(http.HTTPStatus.NOT_FOUND, "no such page")
        kind = TYPES.get(pathlib.PurePath(name).suffix, "application/octet-stream")
        self.send(http.HTTPStatus.OK, self.server.page[name], f"{kind}; charset=utf-8")

    def send(
        self,
        status: http.HTTPStatus,
        body: bytes,
        kind: str,
        headers: dict[str, str] | None = None,
    ) -> None:
        """Send a whole answer."""
        self.send_response(status)
        every = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            **SECURITY,
            **(headers or {}),
        }
        for name, value in every.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _not_allowed(self) -> None:
        self.close_connection = True  # A body may follow, which is not read.
        status = http.HTTPStatus.METHOD_NOT_ALLOWED
        self.send(status, b"only GET", "text/plain", {"Allow": "GET"})


def check_origin(headers: Any) -> None:
    """Reject requests that other sites make a browser send."""
    host = headers.get("Host", "")
    name = re.sub(r":\d+$", "", host)
    if name.lower() not in HOSTS:
        raise RefusedError(http.HTTPStatus.FORBIDDEN, "unknown host name")
    origin = headers.get("Origin")
    if origin is not None and origin != f"http://{host}":
        raise RefusedError(http.HTTPStatus.FORBIDDEN, "other origin")
    if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        raise RefusedError(http.HTTPStatus.FORBIDDEN, "other site")
