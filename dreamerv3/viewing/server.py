"""Serves the page and its data to browsers on this machine."""

from __future__ import annotations

import http
import http.server
import json
import mimetypes
import pathlib
import re
import socketserver
import sys
import urllib.parse
from collections.abc import Callable
from typing import Any

from dreamerv3.viewing import endpoints, runs
from dreamerv3.viewing.store import Store
from embodied.core import runfiles

PAGE = pathlib.Path(__file__).parent / "page"
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
RANGE = re.compile(r"bytes=(\d*)-(\d*)")

Query = dict[str, str]


class RefusedError(Exception):
    """A request that is not answered, with its status."""

    def __init__(self, status: http.HTTPStatus, reason: str):
        super().__init__(reason)
        self.status = status


class Server(http.server.ThreadingHTTPServer):
    """Listens on this machine only."""

    daemon_threads = True

    def __init__(self, store: Store, port: int):
        super().__init__((LOOPBACK, port), Handler)
        self.store = store
        self.page = {
            path.name: path.read_bytes() for path in PAGE.iterdir() if path.is_file()
        }

    def server_bind(self) -> None:
        """Bind without asking a name server for this machine's name."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no error."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection of a browser."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        try:
            check_origin(self.headers)
            url = urllib.parse.urlsplit(self.path)
            query = dict(urllib.parse.parse_qsl(url.query))
            self._answer(urllib.parse.unquote(url.path), query)
        except RefusedError as error:
            self._send(error.status, str(error).encode(), "text/plain")

    def __getattr__(self, name: str) -> Callable[[], None]:
        """Reject all methods but GET."""
        if name.startswith("do_"):
            return self._not_allowed
        raise AttributeError(name)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal belongs to the user."""

    def _not_allowed(self) -> None:
        self.close_connection = True  # A body may follow, which is not read.
        status = http.HTTPStatus.METHOD_NOT_ALLOWED
        self._send(status, b"only GET", "text/plain", {"Allow": "GET"})

    def _answer(self, path: str, query: Query) -> None:
        store = self.server.store
        name = path.removeprefix("/api/")
        if path.startswith("/media/"):
            self._send_file(media_path(store, path.removeprefix("/media/")))
        elif path == "/api/curves":
            body = _ask(endpoints.curves, store, query)
            self._send(http.HTTPStatus.OK, body, "application/octet-stream")
        elif path.startswith("/api/") and name in endpoints.JSON:
            found = _ask(endpoints.JSON[name], store, query)
            body = json.dumps(found, allow_nan=False, default=str).encode()
            self._send(http.HTTPStatus.OK, body, "application/json")
        else:
            self._send_page(path.removeprefix("/") or "index.html")

    def _send_page(self, name: str) -> None:
        if name not in self.server.page:
            raise RefusedError(http.HTTPStatus.NOT_FOUND, "no such page")
        kind = TYPES.get(pathlib.PurePath(name).suffix, "application/octet-stream")
        self._send(http.HTTPStatus.OK, self.server.page[name], f"{kind}; charset=utf-8")

    def _send_file(self, path: pathlib.Path) -> None:
        """A file or, as videos are asked for, a part of it."""
        content = path.read_bytes()
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        headers = {"Accept-Ranges": "bytes"}
        match = RANGE.fullmatch(self.headers.get("Range", ""))
        if not match or not any(match.groups()):
            self._send(http.HTTPStatus.OK, content, kind, headers)
            return
        first, last = byte_range(match, len(content))
        headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        part = content[first : last + 1]
        self._send(http.HTTPStatus.PARTIAL_CONTENT, part, kind, headers)

    def _send(
        self,
        status: http.HTTPStatus,
        body: bytes,
        kind: str,
        headers: dict[str, str] | None = None,
    ) -> None:
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


def media_path(store: Store, path: str) -> pathlib.Path:
    """The file behind RUN/KEY/FILE; only what lies in the run's media folder."""
    name, _, rest = path.partition("/")
    found = store.select([name])
    if not found:
        raise RefusedError(http.HTTPStatus.NOT_FOUND, "no such run")
    root = (found[0].run.path / runfiles.MEDIA).resolve()
    file = (root / rest).resolve() if "\0" not in rest else root
    inside = file.is_relative_to(root) and file.suffix in runs.KINDS
    if not inside or not file.is_file():
        raise RefusedError(http.HTTPStatus.NOT_FOUND, "no such file")
    return file


def byte_range(match: re.Match[str], size: int) -> tuple[int, int]:
    """First and last byte that were asked for."""
    first, last = match.groups()
    if not first:
        begin, end = max(0, size - int(last)), size - 1
    else:
        begin, end = int(first), min(int(last or size), size - 1)
    if begin > end:
        status = http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
        raise RefusedError(status, f"the file has {size} bytes")
    return begin, end


def _ask(function: Callable[[Store, Query], Any], store: Store, query: Query) -> Any:
    try:
        return function(store, query)
    except (KeyError, ValueError) as error:
        reason = f"bad or missing value: {error}"
        raise RefusedError(http.HTTPStatus.BAD_REQUEST, reason) from error
