"""The published metrics, asked in an environment of their own that `make osworld-judge` builds.

Invariant: they run in a sandbox without network and rights that sees their environment and the order alone. However
many ask, one sandbox runs at a time, so judging takes no more memory than `MOST_BYTES`. What they raise solves
nothing. Training never asks them: a policy that learned from them could learn to deceive them.
"""

from __future__ import annotations

import base64
import fcntl
import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from apis.tasks.metrics.metric import SOLVED, Score
from apis.tasks.verify.verify import FileView
from apis.tasksets.getters import AskedOfPackage
from apis.tasksets.published_worker import GUARDS, MARK, MEMORY_BYTES, WALL_S
from runtime.errors import ConfigError

ENVIRONMENT = Path(__file__).parents[2] / ".venv-osworld"
WORKER = Path(__file__).with_name("published_worker.py")
MEND = "make osworld-judge"
SPACE = "/tmp"  # noqa: S108 - of the sandbox, in its memory
SPACE_BYTES = 256 << 20  # of the sandbox's own files
MOST_BYTES = MEMORY_BYTES + SPACE_BYTES + (256 << 20)  # and of the process that hands out orders
BLANK = bytes(64)
START_S, TURNS_S = 120.0, 3 * 3600.0  # from its turn to its first order; and until its turn, behind those of others
TRY_S = 0.2  # between two looks whether it is its turn
FILED = {"check_list"}  # published: what a command said, as a file


class PublishedError(ConfigError):
    """The published metrics are not here, or give no answer: no task's fault, and not the policy's."""


class PublishedScore(msgspec.Struct, frozen=True):
    """What a published metric says: a score, why a guard here makes it 0, what it raised, or which package it lacks."""

    score: float = 0.0
    refused: str = ""
    fault: str = ""  # of the task: why no result can be right
    raised: str = ""
    missing: str = ""


def is_here() -> bool:
    """Whether the environment is here."""
    return (ENVIRONMENT / MARK).exists()


def refuse_missing() -> None:
    """Raise PublishedError unless the environment is here."""
    if not is_here():
        raise PublishedError(f"the published metrics are not here; mend it with: {MEND}")


def _sent(value: Any, called: str) -> Any:
    """An argument as JSON. A file that is missing is none, as the published getters have it."""
    if isinstance(value, AskedOfPackage):
        contents = {path: _encoded(one) for path, one in value.files.items() if one.kind == "file"}
        return {"getter": value.getter, "contents": contents, "address": value.address}
    if isinstance(value, list):
        return [_sent(one, called) for one in value]
    if not isinstance(value, FileView):
        return value
    if value.kind != "file":
        return None
    views = {value.name or called: value, **value.beside}
    files = {key: _encoded(one) for key, one in views.items()}
    return {"name": value.name or called, "files": files}


def _encoded(view: FileView) -> str:
    return base64.b64encode(view.data).decode()


def order(name: str, result: Any, expected: Any, options: Mapping[str, Any], starts: Sequence[FileView] = ()) -> str:
    """What is asked of the metric `name`, and of its guard; `starts` are files that the task starts with."""
    result = FileView("file", data=result.encode()) if name in FILED and isinstance(result, str) else result
    arguments = [_sent(result, "mine"), *([] if expected is None else [_sent(expected, "gold")])]
    asked = {"metric": name, "arguments": arguments, "options": dict(options)}
    return json.dumps(asked | {"starts": [_sent(one, "start") for one in starts]})


def answers(orders: Sequence[str]) -> list[PublishedScore]:
    """What the published metrics answer. Raises PublishedError where they are not here or give no answer."""
    try:
        return [msgspec.json.decode(line, type=PublishedScore) for line in _told(orders)]
    except msgspec.DecodeError as error:
        raise PublishedError(f"the published metrics gave an answer that can't be read: {error}") from None


def _told(orders: Sequence[str]) -> list[str]:
    refuse_missing()
    most = START_S + WALL_S * len(orders)
    try:
        with _turn():
            answered = subprocess.run(
                _command(), input="\n".join(orders), capture_output=True, text=True, check=True, timeout=most
            ).stdout.splitlines()
    except (OSError, subprocess.SubprocessError) as error:
        raise PublishedError(f"the published metrics gave no answer: {error}; mend it with: {MEND}") from None
    if len(answered) != len(orders):
        raise PublishedError(f"the published metrics gave {len(answered)} answers to {len(orders)} orders")
    return answered


@contextmanager
def _turn() -> Iterator[None]:
    """Hold the environment alone, from before its package is loaded. Raises PublishedError after `TURNS_S` seconds."""
    until = time.monotonic() + TURNS_S
    with (ENVIRONMENT / MARK).open("rb") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise PublishedError(
                        f"the published metrics were busy with other orders for {TURNS_S:g} s; judge again later"
                    ) from None
                time.sleep(TRY_S)
        yield


def score(name: str, result: Any, expected: Any, options: Mapping[str, Any], starts: Sequence[FileView] = ()) -> Score:
    """What the published metric `name` gives; 0 where it raises, or where its guard refuses what it accepts.

    A full score counts only where a file of nothing but zeros gets less. Raises PublishedError as
    `answers` does, ConfigError where that file gets a full score, too, where no result can be right, and for what the
    metric's environment lacks.
    """
    blank = _blank(result)
    given = [result] if blank is None else [result, blank]
    found, *others = answers([order(name, one, expected, options, starts) for one in given])
    if found.missing:
        raise ConfigError(f"the published metric {name} needs {found.missing}, which is not here")
    if found.raised:
        return Score(0.0, f"the published metric raised {found.raised[:80]}")
    if found.fault:
        raise ConfigError(f"{name} can't take this task's expectation: {found.fault}")
    if found.refused:
        return Score(0.0, f"the published metric accepts it, but {found.refused}")
    value = min(1.0, max(0.0, found.score))
    if value >= SOLVED and any(one.score >= SOLVED for one in others):
        raise ConfigError(f"the published metric {name} gives any file here its full score: no verdict")
    return Score(value, f"the published metric gives {value:g}")


def _blank(result: Any) -> Any:
    """Files of the same names that hold nothing but zeros, in place of those of `result`; None where it is no file."""
    if isinstance(result, AskedOfPackage) and result.files:
        return msgspec.structs.replace(result, files=dict.fromkeys(result.files, FileView("file", data=BLANK)))
    if isinstance(result, list):
        blanks = [_blank(one) for one in result]
        return blanks if all(blank is not None for blank in blanks) and blanks else None
    return FileView("file", data=BLANK, name=result.name) if isinstance(result, FileView) else None


def _command() -> list[str]:
    base = (ENVIRONMENT / "bin/python").resolve().parents[1]  # /usr, or where another interpreter lies
    bound = () if base == Path("/usr") else ("--ro-bind", str(base), str(base))
    guards = ("--ro-bind", str(WORKER.with_name(f"{GUARDS}.py")), f"/{GUARDS}.py")
    return [
        "bwrap", "--unshare-all", "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL", "--die-with-parent",
        "--new-session", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
        "--symlink", "usr/lib64", "/lib64", *bound, "--ro-bind", str(ENVIRONMENT), str(ENVIRONMENT),
        "--ro-bind", str(WORKER), "/judge.py", *guards, "--proc", "/proc", "--dev", "/dev", "--size", str(SPACE_BYTES),
        "--tmpfs", SPACE, "--chdir", SPACE, "--clearenv", "--setenv", "HOME", SPACE,
        "--setenv", "LANG", "C.UTF-8", "--setenv", "OPENBLAS_NUM_THREADS", "1",
        str(ENVIRONMENT / "bin/python"), "-I", "/judge.py",
    ]  # fmt: skip
