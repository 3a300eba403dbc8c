"""What a build has asked and found so far, in one database file below its folder.

Invariant: an answer or a trial is kept once, whole, before anything follows from it. A build that was killed anywhere
goes on by doing the same again and being given what is kept here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from runtime.errors import ConfigError

FILE = "build.sqlite"
T = TypeVar("T", bound=msgspec.Struct)


class Exchange(msgspec.Struct, frozen=True):
    """One answer of the model; tokens are the server's own counts, or None where it gives none."""

    answer: str
    cut: str = ""
    read_tokens: int | None = None
    written_tokens: int | None = None
    seconds: float = 0.0


class BuildLedger:
    """The file, opened; `begun` describes the build, and another one can't go on here."""

    def __init__(self, folder: Path, begun: str) -> None:
        self._base = sqlite3.connect(folder / FILE, isolation_level=None, timeout=0.5)
        try:
            self._base.execute("PRAGMA synchronous = FULL")
            self._base.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._base.execute(
                "CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, asked TEXT, value TEXT NOT NULL)"
            )
            self._base.executescript("BEGIN EXCLUSIVE; COMMIT")
        except sqlite3.DatabaseError as error:
            self._base.close()
            raise ConfigError(f"{folder / FILE} can't be used: {error}; does another build go on there?") from error
        before = self._value("begun")
        if before is None:
            self._keep("begun", "", begun)
        elif before != begun:
            raise ConfigError(f"{folder} holds another build: give the arguments that it began with, or another --out")

    async def once(self, key: str, asked: str, kind: type[T], work: Callable[[], Awaitable[T]]) -> T:
        """What is kept for `key`, or what `work` gives, which is then kept with what was asked."""
        if (kept := self._value(key)) is not None:
            return msgspec.json.decode(kept, type=kind)
        made = await work()
        self._keep(key, asked, msgspec.json.encode(made).decode())
        return made

    def exchanges(self) -> dict[str, Exchange]:
        """All answers so far by their keys, in order."""
        rows = self._base.execute("SELECT key, value FROM kept WHERE key LIKE 'ask %' ORDER BY rowid").fetchall()
        return {key.removeprefix("ask "): msgspec.json.decode(value, type=Exchange) for key, value in rows}

    def close(self) -> None:
        """Close the file."""
        self._base.close()

    def _value(self, key: str) -> str | None:
        row = self._base.execute("SELECT value FROM kept WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def _keep(self, key: str, asked: str, value: str) -> None:
        self._base.execute("INSERT INTO kept VALUES (?, ?, ?)", (key, asked, value))
