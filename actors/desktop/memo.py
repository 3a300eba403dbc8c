"""What desktops have shown: after the same task and actions the same is shown, answered and judged again.

Every line was seen on a real desktop, and none is of a fault. A line that a desktop contradicts is dropped.
Lines of another image, observation version, form of prompts, screen or task have other keys. Those of other sources of
the guest or of verifiers are not read.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import msgspec

from actors.desktop.config import DesktopsConfig, SeatConfig
from actors.desktop.memo_file import RAW_MOST, Key, MemoChange, MemoLine, fits, merge, read
from actors.desktop.pool.pool import NoLog
from actors.desktop.providers import home
from apis.applications import guest_files
from apis.observation import OBSERVATION_VERSION, Observation
from apis.tasks.osworld import dump
from apis.tasks.registry import task
from apis.tasks.verify.verify import TaskVerdict
from runtime.disk import Log
from runtime.errors import ConfigError, StoreError
from runtime.logs.events import declare

MEMO_OPENED = declare("memo_opened", "info", lines=int, file=str)
MEMO_CONTRADICTED = declare("memo_contradicted", "warning", task=str, what=str, times=int)
MEMO_UNREADABLE = declare("memo_unreadable", "warning", cause=str)

BUNDLED = Path(__file__).resolve().parents[2] / "deploy" / "learn" / "memo.parquet"
FILE = "memo.parquet"  # next to the runs, where no file is named
MERGE_S = 120.0  # a killed process loses so much at most
AWAITED_S = 60.0  # that one seat waits for what another one's desktop is about to show
PACKAGES = Path("/var/lib/dpkg/status")
ROOT = Path(__file__).resolve().parents[2]
# What judges, and what makes HOMEs; the guest's own sources come on top.
JUDGES = ("apis/tasks", "apis/tasksets", "apis/documents", "actors/desktop/files", "actors/desktop/providers")


def image(config: DesktopsConfig) -> str:
    """What the guest is made of, 16 hex digits: versions of its Debian packages, HOME's settings, the screen."""
    wanted = frozenset((ROOT / "deploy" / "guest" / "packages.txt").read_text().split())
    made = hashlib.blake2b(digest_size=8)
    made.update(msgspec.json.encode([sorted(_versions(wanted).items()), home.load(), config.screen]))
    return made.hexdigest()


@lru_cache(maxsize=4)
def _versions(wanted: frozenset[str]) -> dict[str, str]:
    """The installed versions of packages; {} on another system than Debian."""
    versions, name = {}, ""
    try:
        for row in PACKAGES.read_text(errors="replace").splitlines():
            key, _, value = row.partition(": ")
            name = value if key == "Package" else name
            if key == "Version" and name in wanted:
                versions[name] = value
    except OSError:
        return {}
    return versions


@lru_cache(maxsize=1)
def sources() -> str:
    """What shows and judges, 16 hex digits: the guest's and the verifiers' sources, and whether HOMEs have a profile of
    LibreOffice."""
    made = hashlib.blake2b(str(home.office_profile() is not None).encode(), digest_size=8)
    judges = {str(file.relative_to(ROOT)): file for folder in JUDGES for file in (ROOT / folder).rglob("*.py")}
    for name, file in sorted({**guest_files(), **judges}.items()):
        made.update(name.encode() + b"\0" + file.read_bytes())
    return made.hexdigest()


def scope(seat: SeatConfig, desktops: DesktopsConfig) -> str:
    """What all lines of these seats have in common; what shows depends on how long an action waits, too."""
    return f"{OBSERVATION_VERSION}/{seat.format}/{seat.settle_ms}/{image(desktops)}/{sources()}"


def file_of(named: str, runs: Path) -> Path:
    """The file that seats share: as `desktops.memo_file` names it."""
    return Path(named) if named else runs / FILE


def known(of: str, file: Path) -> str:
    """How many of the lines in `file` and the bundled one are of scope `of`. Raises ConfigError like `stored`."""
    lines = {row.key: row.scope for rows in stored(file) for row in rows}
    own = sum(scope == of for scope in lines.values())
    rest = "" if own else ": nothing is remembered at the beginning"
    return f"{own} of {len(lines)} lines are of such desktops as this machine's{rest}"


def stored(file: Path) -> list[list[MemoLine]]:
    """The lines of `file`, and the bundled ones. Raises ConfigError for a file that is no memo."""
    try:
        return [read(one) if one.exists() else [] for one in (file, BUNDLED)]
    except StoreError as error:
        raise ConfigError(f"desktops.memo_file: {error}") from None


class Memo:
    """The lines of one process, and the file that it shares with others. Make and use it on one event loop."""

    def __init__(self, of: str, file: Path, log: Log | None = None) -> None:
        self.scope = of
        self._file = file
        self._log = log or NoLog()
        self._lines: dict[Key, MemoLine] = {}
        self._changes: dict[Key, MemoChange] = {}  # since the last merge
        self._awaited: dict[Key, asyncio.Event] = {}  # what a seat's desktop is about to show, answer or be judged
        self._merging: asyncio.Task[None] | None = None
        self._merged_at = time.monotonic()
        self._size_bytes = 0
        self.contradicted = 0

    @classmethod
    async def open(cls, of: str, file: Path, log: Log | None = None, *, only: bool = False) -> Memo:
        """The lines of scope `of` in `file` and in the bundled one.

        With `only` they may be of another image or other sources, where none is of these: of those that the file has
        most of, or the bundled one. Raises ConfigError for a file that is no memo.
        """
        made = cls(of, file, log)
        files = await asyncio.to_thread(stored, file)
        if only:
            version = f"{of.rsplit('/', 2)[0]}/"
            counts = [Counter(row.scope for row in rows if row.scope.startswith(version)) for rows in files]
            own = Counter({of: sum(each[of] for each in counts)})
            made.scope = next((each.most_common(1)[0][0] for each in (+own, *counts) if each), of)
        # The file's lines go before the bundled ones.
        made._lines = {row.key: row for rows in reversed(files) for row in rows if row.scope == made.scope}
        made._size_bytes = sum(row.size_bytes for row in made._lines.values())
        made._log.emit(MEMO_OPENED, lines=len(made._lines), file=str(file))
        return made

    def root(self, task_id: str) -> Key:
        """The key of a task that has just been set up."""
        return _digest(self.scope.rpartition("/")[0].encode(), dump(task(task_id)))

    def after(self, key: Key, action: str) -> Key:
        """The key after one more action, as the line that a model writes for it."""
        return _digest(key, action.encode())

    def seen(self, key: Key) -> Observation | None:
        line = self._lines.get(key)
        if line is None or line.seen is None:
            return None
        try:
            shown = msgspec.msgpack.decode(line.seen, type=Observation)
        except msgspec.DecodeError:
            self.drop(key, line.task, "a screen that can't be read")
            return None
        self._used(key, line)
        return shown

    def picture(self, key: Key) -> bytes | None:
        line = self._lines.get(key)
        return None if line is None else line.picture

    def result(self, key: Key) -> str | None:
        line = self._lines.get(key)
        return None if line is None else line.result

    def verdict(self, key: Key) -> TaskVerdict | None:
        line = self._lines.get(key)
        if line is None or line.verdict is None:
            return None
        self._used(key, line)
        return line.verdict

    def expect(self, key: Key) -> bool:
        """A desktop is about to show what `key` will know: seats at the same moment wait until `settle`.

        False where another desktop is expected to already.
        """
        fresh = key not in self._awaited
        self._awaited.setdefault(key, asyncio.Event())
        return fresh

    def settle(self, key: Key) -> None:
        """What was expected is known, or won't come."""
        if (event := self._awaited.pop(key, None)) is not None:
            event.set()

    async def awaited(self, key: Key) -> bool:
        """Wait, at most for a while, for what another seat's desktop is about to show; whether that has ended."""
        if (event := self._awaited.get(key)) is None:
            return False
        with suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), AWAITED_S)
        return event.is_set()

    def keep(
        self,
        key: Key,
        of: str,
        *,
        seen: Observation | None = None,
        picture: bytes | None = None,
        result: str | None = None,
        verdict: TaskVerdict | None = None,
    ) -> bool:
        """Remember what a desktop has just shown, answered or been judged; False, and the line is dropped, where it was
        remembered otherwise. `of` is the task's id. What is larger than a line is not kept, nor what a late program
        lacks on the screen."""
        packed = None if seen is None or seen.cut else msgspec.msgpack.encode(by_place(seen))
        fresh = MemoLine(self.scope, key, of, result, packed, verdict, 1, picture)
        known = self._lines.get(key)
        if known is not None and (other := known.contradicts(fresh)):
            self.drop(key, of, other)
            return False
        if not fits(fresh) or (known is None and self._size_bytes > RAW_MOST):
            return True
        joined = fresh if known is None else known.joined(fresh)
        self._size_bytes += joined.size_bytes - (0 if known is None else known.size_bytes)
        if known is None or not known.knows(fresh):
            self._changes[key] = MemoChange(joined, fresh=True)
            self._soon()
        self._lines[key] = joined
        return True

    def _used(self, key: Key, line: MemoLine) -> None:
        self._lines[key] = grown = msgspec.structs.replace(line, uses=line.uses + 1)
        change = self._changes.get(key)
        self._changes[key] = MemoChange(grown, fresh=change is not None and change.fresh)

    def drop(self, key: Key, of: str, what: str) -> None:
        """Forget a line whose `what` a desktop has contradicted; dropped twice it counts once."""
        change, line = self._changes.get(key), self._lines.pop(key, None)
        if line is None and change is not None and change.line is None:
            return
        self.contradicted += 1
        self._size_bytes -= 0 if line is None else line.size_bytes
        self._changes[key] = MemoChange(None, fresh=True)
        self._log.emit(MEMO_CONTRADICTED, task=of, what=what, times=self.contradicted)

    def _soon(self) -> None:
        if self._merging is None and time.monotonic() - self._merged_at > MERGE_S:
            self._merging = asyncio.ensure_future(self._merge())

    async def _merge(self) -> None:
        changes, self._changes = self._changes, {}
        try:
            lines = await asyncio.to_thread(merge, self._file, changes)
        except (StoreError, OSError) as error:
            self._changes = changes | self._changes  # the next one tries again
            self._log.emit(MEMO_UNREADABLE, cause=str(error)[:400])
        else:  # what other processes have seen meanwhile, or seen otherwise
            there = {row.key: row for row in lines if row.scope == self.scope}
            for key, change in changes.items():
                if change.fresh and key not in there and key not in self._changes:
                    self._lines.pop(key, None)
            self._lines |= {key: row for key, row in there.items() if key not in self._changes}
            self._size_bytes = sum(row.size_bytes for row in self._lines.values())
        self._merged_at, self._merging = time.monotonic(), None

    async def close(self) -> None:
        if self._merging is not None:
            await self._merging
        if self._changes:
            await self._merge()


def by_place(seen: Observation) -> Observation:
    """The same with windows numbered by their place: a desktop draws the numbers, and no compact prompt shows them."""
    windows = tuple(msgspec.structs.replace(window, number=n) for n, window in enumerate(seen.windows, 1))
    return msgspec.structs.replace(seen, windows=windows)


def _digest(*parts: bytes) -> Key:
    made = hashlib.blake2b(digest_size=16)
    for part in parts:
        made.update(len(part).to_bytes(8, "big"))
        made.update(part)
    return made.digest()
