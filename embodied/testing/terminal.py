"""A terminal for tests: a pty whose other end interprets what is written to it."""

from __future__ import annotations

import os
import pty
import re
import termios
import threading

TOKEN = re.compile(r"\x1b\[[?\d;]*[A-Za-z]|\x1b[78D]|\r|\n|\t|[^\x1b\r\n\t]")


class Terminal:
    """Understands what `embodied.metrics.screen` and plain printing need."""

    def __init__(self, lines: int = 24, columns: int = 80):
        self.cursor_hidden = False
        self.history: list[str] = []  # Lines that scrolled off.
        self.text = ""  # All that was written.
        self._width, self._height = columns, lines
        self._rows = [[" "] * columns for _ in range(lines)]
        self._row = self._column = 0
        self._saved = (0, 0)
        self.region = (0, lines - 1)
        self._reader, self.tty = pty.openpty()
        termios.tcsetwinsize(self.tty, (lines, columns))
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def screen(self) -> list[str]:
        """The visible lines."""
        return ["".join(row).rstrip() for row in self._rows]

    def finish(self, timeout: float = 10.0) -> list[str]:
        """All lines, also those that scrolled off, once all writers have closed."""
        os.close(self.tty)
        self._thread.join(timeout)
        assert not self._thread.is_alive(), "a process still holds the terminal"
        os.close(self._reader)
        return [*self.history, *self.screen()]

    def _read(self) -> None:
        data = b""
        while True:
            try:
                data += os.read(self._reader, 65536)
            except OSError:  # The other end was closed.
                break
        self.text = data.decode()
        for token in TOKEN.findall(self.text):
            self._take(token)

    def _take(self, token: str) -> None:
        match token:
            case "\r":
                self._column = 0
            case "\n" | "\x1bD":
                self._down()
            case "\t":
                self._column = min(self._width - 1, self._column // 8 * 8 + 8)
            case "\x1b7":
                self._saved = self._row, self._column
            case "\x1b8":
                self._row, self._column = self._saved
            case _ if token.startswith("\x1b["):
                self._control(token[-1], re.findall(r"\d+", token), token)
            case _:
                self._put(token)

    def _control(self, final: str, digits: list[str], token: str) -> None:
        numbers = list(map(int, digits))
        if final == "r":
            top, bottom = numbers or (1, self._height)
            self.region = top - 1, bottom - 1
            self._row = self._column = 0
        elif final == "H":
            self._row, self._column = numbers[0] - 1, numbers[1] - 1
        elif final == "A":
            self._row = max(0, self._row - numbers[0])
        elif final == "K":
            self._rows[self._row] = [" "] * self._width
        elif final == "J":
            self._rows[self._row][self._column :] = [" "] * (self._width - self._column)
            for row in range(self._row + 1, self._height):
                self._rows[row] = [" "] * self._width
        elif token.startswith("\x1b[?25"):
            self.cursor_hidden = final == "l"
        else:
            assert final == "m", f"unknown sequence {token!r}"

    def _put(self, character: str) -> None:
        if self._column == self._width:
            self._column = 0
            self._down()
        self._rows[self._row][self._column] = character
        self._column += 1

    def _down(self) -> None:
        top, bottom = self.region
        if self._row == bottom:
            row = self._rows.pop(top)
            self.history.append("".join(row).rstrip())
            self._rows.insert(bottom, [" "] * self._width)
        else:
            self._row = min(self._row + 1, self._height - 1)
