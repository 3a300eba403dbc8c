"""The process that runs generated functions: `python3 -I worker.py`, one job a line, one answer a line.

A job names what to do: `look` examines a source and makes mutants of it, `call` runs a function of a source. Nothing
generated runs in a process that also looks. What a generated function prints is thrown away.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ANSWER_CHARS = 5000
TRACE_CHARS = 1500
# What a function may open besides its desktop user's own files: programs, libraries, sockets' folders, devices.
READABLE = ("/usr/", "/lib", "/etc/fonts/", "/etc/ssl/", "/etc/ld.so.cache", "/dev/null", "/proc/self/", "/tmp/")  # noqa: S108
WRITERS = {"os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "os.symlink", "os.link", "os.chmod"}
CHANNELS = {0}  # where jobs come from, and where answers go
STARTS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty"}


def inside(path: Any) -> bool:
    """Whether a generated function may open `path`."""
    if isinstance(path, int):
        return path not in CHANNELS
    real = os.path.realpath(os.fsdecode(path))
    return real.startswith((os.path.realpath(os.environ["HOME"]) + "/", "/run/user/", *READABLE))


def guard(programs: bool) -> None:
    """From now on refuse files of others, and programs where the application's profile does not allow them."""

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and args[0] is not None and not inside(args[0]):
            raise PermissionError(f"a function may open files of the user alone, and not {str(args[0])[:100]}")
        if event in WRITERS and not all(inside(part) for part in args if isinstance(part, str | bytes)):
            raise PermissionError(f"{event}: a function may change files of the user alone")
        if event in STARTS and not programs:
            raise PermissionError("a function of this application starts no programs")

    sys.addaudithook(hook)


def called(job: dict[str, Any]) -> dict[str, Any]:
    """What the function of a job says, or where it failed."""
    try:
        app = _app(job["helpers"], tuple(job["imports"]))
        said = _loaded(job["source"], job["name"], app)[job["name"]](**job["arguments"])
        return {"says": str("" if said is None else said)[:ANSWER_CHARS]}
    except (Exception, SystemExit) as error:  # noqa: BLE001 - generated code may raise anything
        own = [part for part in traceback.extract_tb(error.__traceback__) if part.filename.startswith("<")]
        lines = "".join(traceback.format_list(own)) + f"{type(error).__name__}: {error}"
        refused = type(error) in (ValueError, LookupError)
        return {"refuses" if refused else "fails": str(error)[:500] if refused else lines[-TRACE_CHARS:]}


@cache
def _app(helpers: str, imports: tuple[str, ...]) -> Any:
    """What functions are given; once it is there, files and programs are guarded."""
    module, _, name = helpers.partition(" ")
    app = importlib.import_module(module).App(name) if module else None
    for each in imports:
        importlib.import_module(each)
    guard("subprocess" in imports)
    return app


@cache
def _loaded(source: str, name: str, app: Any) -> dict[str, Any]:
    names = {"__name__": name, "app": app}
    exec(compile(source, f"<{name}>", "exec"), names)  # noqa: S102 - this process is made for it
    return names


def main() -> int:
    """Answer jobs until the input ends."""
    sys.path[0] = str(HERE.parents[1])  # so that `guest` is a package
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    CHANNELS.add(answers.fileno())
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    for line in sys.stdin:
        job = json.loads(line)
        if job["do"] == "look":
            look = importlib.import_module("guest.built.look")
            answer = look.examined(job["source"], job["name"], job["params"], job["imports"])
        else:
            answer = called(job)
        answers.write(json.dumps(answer | {"i": job["i"]}) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
