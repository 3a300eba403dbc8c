"""The published metrics, asked in their own environment: `published.py` starts this file by its path.

Invariant: an order is judged in a process of its own, with bounded memory, processor time, wall time and files. A
package that is not installed gives no score.

Input: a JSON line per order, with the metric's name, its arguments and the files at the start. Output: a JSON line per
order, with a score, why a guard refuses it, what was raised, or what is missing.
"""

from __future__ import annotations

import base64
import importlib
import importlib.abc
import importlib.machinery
import json
import math
import os
import resource
import select
import signal
import sys
import tempfile
import time
import types
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

# Packages of sounds and text in pictures, 3 GB in all, and those that a licence leaves out.
LEFT_OUT = ("acoustid", "borb", "easyocr", "fastdtw", "fitz", "librosa", "pdfplumber", "playwright", "pydrive")
OPENS_PDF = ("fitz", "pdfplumber")  # their pages' text alone is given, with that of fields, by pypdf
GUARDS = "published_guards"  # the module next to this file: what a score has to pass too
MARK = ".computerrl"  # of the environment, once it is whole; `published.py` holds its lock while this runs
HOME = "/home/user/"
CPU_S, MEMORY_BYTES, FILE_BYTES = 20, 2 << 30, 64 << 20
WALL_S = 300.0  # of an order, for a metric that waits; on a busy machine `CPU_S` may take most of it
touched: list[str] = []


class Missing(types.ModuleType):
    """What is not installed: it can be imported, and is noted as soon as it is used."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        touched.append(self.__name__)
        return Missing(f"{self.__name__}.{name}")

    def __call__(self, *_: Any, **__: Any) -> None:
        touched.append(self.__name__)
        raise ModuleNotFoundError(self.__name__)


class MissingFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the packages that the environment leaves out, after all other finders."""

    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in LEFT_OUT:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Missing:
        return Missing(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        del module  # nothing is there to run


def page_text(page: Any) -> str:
    """A page's text, and what is filled into its fields."""
    notes = [note.get_object() for note in page.get("/Annots") or []]
    filled = [note.get("/V") for note in notes if note.get("/Subtype") == "/Widget"]
    return "\n".join([page.extract_text(), *(str(value) for value in filled if value)])


class PdfText:
    """What `fitz` and `pdfplumber` open: pages with their text."""

    def __init__(self, path: str) -> None:
        from pypdf import PdfReader

        texts = (partial(page_text, page) for page in PdfReader(path).pages)
        self.pages = [types.SimpleNamespace(get_text=text, extract_text=text) for text in texts]

    def __enter__(self) -> PdfText:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held open."""

    def __iter__(self) -> Iterator[types.SimpleNamespace]:
        return iter(self.pages)


class ContentsAtHand:
    """What a published getter asks of its environment: files by their paths, and a folder to put them into."""

    def __init__(self, contents: dict[str, bytes], folder: Path) -> None:
        self.cache_dir = str(folder)
        self.controller = types.SimpleNamespace(get_file=contents.get)


def got(asked: dict[str, Any], folder: Path) -> Any:
    """What a published getter gives; one of the tab in front gets its address."""
    getters = importlib.import_module("desktop_env.evaluators.getters")
    pages = importlib.import_module("desktop_env.evaluators.getters.chrome")
    pages.__dict__["get_active_url_from_accessTree"] = lambda *_: asked["address"]
    folder.mkdir(parents=True, exist_ok=True)
    contents = {path: base64.b64decode(data) for path, data in asked["contents"].items()}
    config = {key: of_home(value) for key, value in asked["getter"].items()}
    return getattr(getters, f"get_{config['type']}")(ContentsAtHand(contents, folder), config)


def of_home(value: Any) -> Any:
    """A path as files are called here: relative to HOME."""
    return value.removeprefix(HOME) if isinstance(value, str) else value


def given(value: Any, folder: Path) -> Any:
    """An argument; a file is written into `folder` and becomes its path."""
    if isinstance(value, dict) and "getter" in value:
        return got(value, folder)
    if isinstance(value, list):
        return [given(one, folder / str(number)) for number, one in enumerate(value)]
    if not isinstance(value, dict) or "files" not in value:
        return value
    folder.mkdir(parents=True)
    for name, data in value["files"].items():
        (folder / name).write_bytes(base64.b64decode(data))
    return str(folder / value["name"])


def judge(metrics: types.ModuleType, order: dict[str, Any], guards: Any) -> dict[str, Any]:
    """The answer to one order; a score that the `guards` refuse is 0."""
    metric = getattr(metrics, order["metric"], None)
    if metric is None:
        return {"missing": "not in the package"}
    touched.clear()
    with tempfile.TemporaryDirectory() as folder:
        arguments = [given(one, Path(folder) / str(number)) for number, one in enumerate(order["arguments"])]
        starts = [given(one, Path(folder) / "start" / str(at)) for at, one in enumerate(order.get("starts", ()))]
        answer: dict[str, Any]
        try:
            score = float(metric(*arguments, **order["options"]))
            answer = {"score": score} if math.isfinite(score) else {"raised": f"no score but {score}"}
            asked = (order["metric"], arguments, order["options"])
            if score > 0 and (why := guards.refused(*asked, starts)):
                answer = {"score": 0.0, "refused": why.encode("utf-8", "replace").decode()}
            elif not score > 0 and (why := guards.at_fault(*asked)):
                answer = {"fault": why}
        except Exception as error:  # noqa: BLE001 - whatever a published metric raises is the answer
            said = f"{type(error).__name__}: {error}"[:200]
            answer = {"raised": said.encode("utf-8", "replace").decode()}
    return {"missing": touched[0]} if touched else answer


def apart(metrics: types.ModuleType, order: dict[str, Any], guards: Any) -> dict[str, Any]:
    """The answer of a process of its own, which is then killed with all that it started."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            for what, most in (
                (resource.RLIMIT_CPU, CPU_S),
                (resource.RLIMIT_AS, MEMORY_BYTES),
                (resource.RLIMIT_FSIZE, FILE_BYTES),
            ):
                resource.setrlimit(what, (most, most))
            os.write(writing, json.dumps(judge(metrics, order, guards)).encode() + b"\n")
        finally:
            os._exit(1)
    os.setpgid(child, child)
    os.close(writing)
    said = heard(reading, time.monotonic() + WALL_S)
    os.close(reading)
    os.killpg(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if said is None:
        return {"raised": f"took longer than {WALL_S:g} s"}
    return json.loads(said) if said.endswith(b"\n") else {"raised": f"ended with status {status}"}


def heard(reading: int, until: float) -> bytes | None:
    """A line, or what came before the end; None where neither is there at `until` (seconds, monotonic)."""
    said = b""
    while not said.endswith(b"\n"):
        if not select.select([reading], [], [], max(0.0, until - time.monotonic()))[0]:
            return None
        part = os.read(reading, 1 << 16)
        if not part:
            break
        said += part
    return said


def main() -> None:
    """Answer all orders. What the metrics print goes nowhere."""
    answers = os.fdopen(os.dup(1), "w")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    sys.meta_path.append(MissingFinder())
    for name in OPENS_PDF:
        importlib.import_module(name).__dict__["open"] = PdfText
    importlib.import_module("desktop_env.evaluators.getters")  # before what it lacks counts
    metrics = importlib.import_module("desktop_env.evaluators.metrics")
    sys.path.append(str(Path(__file__).parent))
    guards = importlib.import_module(GUARDS)
    for line in sys.stdin:
        order = json.loads(line)
        answers.write(json.dumps(apart(metrics, order, guards)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
