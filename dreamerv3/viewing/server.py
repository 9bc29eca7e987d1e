"""Serves the page and the data of runs to browsers on this machine."""

from __future__ import annotations

import http
import json
import mimetypes
import pathlib
import re
from collections.abc import Callable
from typing import Any

from dreamerv3.viewing import endpoints, runs
from dreamerv3.viewing.local import LocalHandler, LocalServer, Query, RefusedError
from dreamerv3.viewing.store import Store
from embodied.core import runfiles

PAGE = pathlib.Path(__file__).parent / "page"
RANGE = re.compile(r"bytes=(\d*)-(\d*)")


class Server(LocalServer):
    """Serves what a store knows of runs."""

    def __init__(self, store: Store, port: int):
        super().__init__(port, Handler, PAGE)
        self.store = store


class Handler(LocalHandler):
    """One connection of a browser."""

    server: Server

    def answer(self, path: str, query: Query) -> None:
        store = self.server.store
        name = path.removeprefix("/api/")
        if path.startswith("/media/"):
            self._send_file(media_path(store, path.removeprefix("/media/")))
        elif path == "/api/curves":
            body = _ask(endpoints.curves, store, query)
            self.send(http.HTTPStatus.OK, body, "application/octet-stream")
        elif path.startswith("/api/") and name in endpoints.JSON:
            found = _ask(endpoints.JSON[name], store, query)
            body = json.dumps(found, allow_nan=False, default=str).encode()
            self.send(http.HTTPStatus.OK, body, "application/json")
        else:
            self.send_page(path.removeprefix("/") or "index.html")

    def _send_file(self, path: pathlib.Path) -> None:
        """A file or, as videos are asked for, a part of it."""
        content = path.read_bytes()
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        headers = {"Accept-Ranges": "bytes"}
        match = RANGE.fullmatch(self.headers.get("Range", ""))
        if not match or not any(match.groups()):
            self.send(http.HTTPStatus.OK, content, kind, headers)
            return
        first, last = byte_range(match, len(content))
        headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        part = content[first : last + 1]
        self.send(http.HTTPStatus.PARTIAL_CONTENT, part, kind, headers)


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
