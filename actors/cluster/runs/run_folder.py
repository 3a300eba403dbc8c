"""A run's folder: who owns it, what it is a run of, how it ended.

Invariant: at most one live process owns a run folder. Ownership is an flock, so it ends with its process whatever kills
it. A recorded run without an owner and without an end was killed.
"""

from __future__ import annotations

import argparse
import errno
import fcntl
import os
import shlex
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO

import msgspec

from actors.cluster import output
from actors.cluster import paths as places
from actors.cluster.config.suggest import hint
from actors.replay.database.ledger_file import LEDGER
from runtime import disk
from runtime.errors import ConfigError
from runtime.program import program

RUN = "run"
# What the `file` of a run begins with that another command than `run` made.
EVAL, RECORD = "eval", "demos record"
# What the reason of a run begins with that its time limit ended: more time goes on with it.
OUT_OF_TIME = "out of time"
LOCK = "lock"  # in a run's folder
LAST = "last"  # the newest run that trains; where none does, the newest of another kind
SET_ASIDE_BYTES = 64 << 10  # more than any record
PRIVATE = 0o700  # of a run's folder: episodes hold what desktops showed, and settings may name machines
SEED = "run.seed"
_OTHERS = 0o077  # the umask while a run's folder is written to, also of the processes that are started meanwhile


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a command line asked of its runs."""

    seeds: list[int] = []  # of an experiment
    overrides: list[str] = []  # PATH=VALUE
    fork: str = ""  # RUN@VERSION that they begin from, RUN a path

    def joined(self, later: Asked) -> Asked:
        return Asked(
            seeds=list(dict.fromkeys([*self.seeds, *later.seeds])),
            overrides=list(dict.fromkeys([*self.overrides, *later.overrides])),
            fork=self.fork or later.fork,
        )

    def words(self) -> list[str]:
        of_seeds = ["--seed", *map(str, self.seeds)] if self.seeds else []
        return [*of_seeds, *(word for one in self.overrides for word in ("--set", one))]


class NamedWeights(msgspec.Struct, frozen=True, kw_only=True):
    """Weights and what they are called."""

    folder: str  # Hugging Face folder
    name: str  # `base`, a run's name, a folder's path or a name on the hub, as asked for
    version: str = "0.0"  # LINEAGE.STEP
    run: str = ""  # folder of the run that made them
    at: str = ""  # round, version or `newest`


class RunRecord(msgspec.Struct, kw_only=True):
    """`run.json`."""

    name: str
    file: str  # the deploy file as the user named it
    path: str = ""  # what means it from any folder; "" in older builds
    seed: int
    build: str  # runtime.program
    versions: dict[str, str]  # package -> version
    started: str  # wall time, ISO 8601
    started_s: float  # the same, seconds since the epoch
    ended: str | None = None
    verdict: str | None = None  # "ok", "failed", "stopped", "crashed"; None while it runs or when it was killed
    reason: str | None = None
    resumed: int = 0  # how many times
    crashes: int = 0  # how many of them after a crash
    experiment: str = ""  # the name that the runs of several seeds share; "" for a run of its own
    settings: str = ""  # digest of what the deploy file said when the run was begun
    asked: Asked | None = None  # by all commands that went on with this run; None where it was no deploy file's
    weights: NamedWeights | None = None  # that `eval` plays

    @property
    def found(self) -> str:
        """The deploy file as it is found from here: as the user named it, where that is the same one."""
        return self.file if not self.path or os.path.realpath(self.file) == self.path else self.path

    @property
    def verb(self) -> str:
        return next((verb for verb in (EVAL, RECORD) if self.file.startswith(f"{verb} ")), RUN)

    @property
    def of_eval(self) -> bool:
        """Whether `eval` made it: it learned nothing."""
        return self.verb == EVAL

    @property
    def has_ended(self) -> bool:
        """Whether nothing is left to do: it was judged, and its time limit was not what ended it."""
        return self.verdict in ("ok", "failed") and not (self.reason or "").startswith(OUT_OF_TIME)


class LockOwner(msgspec.Struct, kw_only=True):
    """The content of the lock file."""

    pid: int
    started: str


def iso(seconds: float) -> str:
    """Wall seconds as ISO 8601 in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


class RunFolder:
    """One run's folder, claimed by this process."""

    def __init__(self, path: Path, record: RunRecord, lock: IO[str]) -> None:
        self.path = path
        self.record = record
        self._lock = lock
        self._umask = os.umask(_OTHERS)  # of this process before

    def save(self) -> None:
        write(self.path, "run.json", msgspec.json.format(msgspec.json.encode(self.record), indent=2) + b"\n")
        if not self.record.verdict:  # room for the next record: a run that a full disk ended is to say so
            with suppress(OSError), (self.path / "run.json.part").open("wb") as file:
                file.write(b" " * SET_ASIDE_BYTES)

    def end(self, verdict: str, reason: str | None) -> None:
        """Record how it ended and give the folder back."""
        self.record.ended, self.record.verdict, self.record.reason = iso(time.time()), verdict, reason
        try:
            self.save()
        except OSError as error:
            output.line(
                f"{self.path / 'run.json'} can't be written: {error.strerror}; verdict: {verdict}", to=sys.stderr
            )
        self.give_back()

    def give_back(self) -> None:
        self._lock.close()
        os.umask(self._umask)


def write(path: Path, name: str, content: bytes) -> None:
    """Write file `name` of the run's folder `path`, which this process owns, the whole of it or nothing."""
    partial = path / f"{name}.part"
    with os.fdopen(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b") as file:
        file.write(content)  # over what was set aside for it, if that was
        file.truncate()
    partial.replace(path / name)


def claim(path: Path, record: RunRecord, *, resume: bool) -> RunFolder:
    """Own the folder `path`; until its end all files that this process and its children make are their user's alone.

    Raises ConfigError when it is in use or no folder, or exists and `resume` is False.
    """
    if not resume:
        refuse_taken(path)
    existed = is_run(path)
    lock = _locked(path, record.started)
    if existed:
        before = read_record(path)
        record.resumed = before.resumed + 1
        record.crashes = before.crashes + (before.verdict == "crashed")
        record.seed = before.seed
        record.started, record.started_s = before.started, before.started_s
        record.settings = before.settings or record.settings
        if before.asked is not None:  # a resume that named some of its runs did not give up the others
            record.asked = before.asked.joined(record.asked or before.asked)
    folder = RunFolder(path, record, lock)
    try:
        folder.save()
    except BaseException:
        folder.give_back()
        raise
    return folder


@contextmanager
def held(path: Path, started: str) -> Iterator[None]:
    """Own the folder of an old run without going on with it: its record stays as it is. Raises ConfigError when it is
    in use."""
    with closing(_locked(path, started)):
        yield


def _locked(path: Path, started: str) -> IO[str]:
    """The lock of folder `path`, held until it is closed. Raises ConfigError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(PRIVATE)  # of an older build's run, too; what lies in it is reached through it only
        if (path / LOCK).exists() and not (path / LOCK).is_file():
            raise OSError(errno.EINVAL, "it is no regular file", str(path / LOCK))
        lock = os.fdopen(os.open(path / LOCK, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600), "a+")
    except OSError as error:
        at = Path(str(error.filename)).name if error.filename else path.name
        why = f"its {at}: {error.strerror}" if at == LOCK else error.strerror
        raise ConfigError(f"run {path.name} can't be kept in {path.parent}: {why}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise ConfigError(f"run {path.name} is in use by {_describe(owner(path))}") from None
    lock.truncate(0)
    lock.write(msgspec.json.encode(LockOwner(pid=os.getpid(), started=started)).decode())
    lock.flush()
    return lock


def owner(path: Path) -> LockOwner | None:
    """The live process that owns the run at `path`, or None."""
    try:
        with disk.opened(path / LOCK) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                with suppress(msgspec.DecodeError, RecursionError):
                    return msgspec.json.decode(lock.read(disk.SETTINGS), type=LockOwner)
                return LockOwner(pid=0, started="an unknown time")
    except OSError:  # there is none, or none that a run could hold
        return None
    return None


def refuse_taken(path: Path) -> None:
    """Raise ConfigError where a run is at `path`, or something else that a run's folder can't be."""
    if is_run(path):
        raise ConfigError(f"run {path.name} exists already: continue it with --resume, or give another --name")
    if os.path.lexists(path) and not os.path.isdir(path):
        raise ConfigError(f"--name {path.name}: {path} is no folder; give another --name")


def refuse_held(path: Path) -> None:
    """Raise ConfigError where a live process owns the run at `path`."""
    if (by := owner(path)) is not None:
        raise ConfigError(f"run {path.name} is in use by {_describe(by)}")


def to_continue(record: RunRecord, path: Path) -> str:
    """The command that goes on with the run at `path`, or with the experiment that it is of, as it was begun."""
    words = record.verb.split()
    words += [record.found] if record.verb == RUN else []
    if record.experiment:
        words += (record.asked or Asked(seeds=[record.seed])).words()
    words += ["--resume", "--name", record.experiment or path.name]
    return f"{program()} {shlex.join(words)}{runs_flag(path.parent)}"


def runs_flag(runs: Path) -> str:
    """What a command needs, with a space before it, to find runs in `runs`."""
    there, here = runs.resolve(), Path.cwd()
    if there == (here / places.RUNS).resolve():
        return ""
    return f" --runs {shlex.quote(str(there.relative_to(here) if there.is_relative_to(here) else there))}"


def words_for(run: Path) -> str:
    """What commands are given to find `run`."""
    return f"{run.name}{runs_flag(run.parent)}"


def _describe(by: LockOwner | None) -> str:
    return f"process {by.pid} since {by.started}" if by else "another process"


def read_record(path: Path) -> RunRecord:
    """The record of the run at `path`. Raises ConfigError when there is none or it is broken."""
    try:
        found = msgspec.json.decode(disk.read_bytes(path / "run.json"), type=RunRecord)
    except OSError as error:
        raise ConfigError(f"{path} is no run folder: its run.json: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path / 'run.json'} is broken: {error}") from None
    return found


def is_run(path: Path) -> bool:
    """Whether a run, whole or broken, is at `path`. Raises ConfigError where this user may not look."""
    try:
        return stat.S_ISREG((path / "run.json").stat().st_mode)
    except PermissionError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from None
    except (OSError, ValueError):
        return False


def state(path: Path, record: RunRecord) -> str:
    """One word: running, its verdict, or killed."""
    if owner(path) is not None:
        return "running"
    return record.verdict or "killed"


def of_runs(named: str) -> Path:
    """The folder that --runs names, to list what is in it. Raises ConfigError when it isn't there."""
    if named != places.RUNS and not Path(named).exists():  # the default is made by the first run
        raise ConfigError(f"--runs {named}: there is no such folder")
    return Path(named)


def all_runs(runs: Path) -> Iterator[tuple[Path, RunRecord]]:
    """Every run below `runs` whose record can be read, newest last. Raises ConfigError where `runs` is no folder."""
    found = [(path, record) for path, record in _records(runs) if isinstance(record, RunRecord)]
    yield from sorted(found, key=lambda pair: (pair[1].started_s, pair[0].name))


def broken(runs: Path) -> list[tuple[Path, str]]:
    """The runs below `runs` whose record can't be read, and why, by name."""
    return sorted((path, why) for path, why in _records(runs) if isinstance(why, str))


def _records(runs: Path) -> Iterator[tuple[Path, RunRecord | str]]:
    try:
        folders = list(runs.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"--runs {runs}: no folder of runs: {error.strerror}") from None
    for path in folders:
        try:
            if is_run(path):
                yield path, read_record(path)
        except ConfigError as error:
            yield path, str(error)


def of_experiment(runs: Path, name: str) -> list[Path]:
    """The runs of experiment `name` that have begun to play, oldest first; none of any other name."""
    found = [path for path, record in all_runs(runs) if record.experiment == name]
    return [path for path in found if (path / LEDGER).is_file()]


def newest(runs: Path, name: str | None, mine: Callable[[Path, RunRecord], bool], what: str) -> Path:
    """The newest of `mine` below `runs`, or the one called `name`. Raises ConfigError calling those `what`."""
    known = [path.name for path, record in all_runs(runs) if mine(path, record)]
    if name is None and not known:
        raise ConfigError(f"nothing to resume: no {what} in {runs}")
    if name is None or name in known:
        return runs / (name or known[-1])
    if name in {path.name for path, _ in broken(runs)}:
        read_record(runs / name)  # says what is wrong with it
    raise ConfigError(f"--name {name}: no such {what} in {runs}; {hint(name, known)}")


def trains(_path: Path, record: RunRecord) -> bool:
    """Whether `run` made it, and not `eval` or `demos`."""
    return record.verb == RUN


def look_up(
    runs: Path,
    name: str,
    is_one: Callable[[Path], bool] = is_run,
    usable: Callable[[Path, RunRecord], bool] = lambda *_: True,
) -> Path | None:
    """The folder that `name` means, None where there is no such folder.

    A name is a run below `runs`, then a path, then `last`. `is_one` says whether a folder is what the command asks for;
    `last` is the newest `usable` run below `runs`. Raises ConfigError where `runs` is no folder.
    """
    known = [*all_runs(runs)]
    for path in (runs / name, Path(name)):
        if is_one(path):
            return path
    if name != LAST:
        return None
    return next((path for path, record in reversed(known) if usable(path, record)), None)


def find(runs: Path, name: str) -> Path:
    """The folder of the run that `name` means. Raises ConfigError with the nearest name."""
    folder = look_up(runs, name, usable=trains) or look_up(runs, name)
    if folder is None:
        known = [path.name for path, _ in all_runs(runs)]
        if not known and not broken(runs):
            what = "" if name == LAST else f"no run {name}: there are "
            raise ConfigError(f"{what}no runs in {runs} yet: make one with  {program()} run smoke{runs_flag(runs)}")
        raise ConfigError(f"no run {name} in {runs}; {hint(name, known)}")
    if name == LAST and folder.name != LAST:
        for _, why in broken(runs):
            output.line(f"passed by: {why}", to=sys.stderr)
    return folder


def list_runs(args: argparse.Namespace) -> int:
    """Print all runs; 0 also when there are none. A run whose record is broken is listed as such."""
    runs = of_runs(args.runs)
    rows = [(path, record, state(path, record)) for path, record in all_runs(runs)]
    bad = broken(runs)
    if args.json:
        plain = [{"path": str(path), "state": state, **msgspec.to_builtins(record)} for path, record, state in rows]
        plain += [{"path": str(path), "state": "broken", "name": path.name, "reason": why} for path, why in bad]
        output.document(plain)
    elif not rows and not bad:
        output.line(f"no runs in {args.runs}: start one with  {program()} run smoke{runs_flag(runs)}")
    else:
        table = [
            (path.name, state, of.started, output.duration(time.time() - of.started_s), of.file, of.reason or "")
            for path, of, state in rows
        ]
        table += [(path.name, "broken", "-", "-", "-", why) for path, why in bad]
        output.table(("RUN", "STATE", "STARTED", "AGE", "FILE", "REASON"), table)
    return 0
