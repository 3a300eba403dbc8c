"""The published metrics, asked in their own environment: `published.py` starts this file by its path.

Invariant: an order is judged in a process of its own, with bounded memory, processor time, wall time and files, one
after the other. An answer is JSON with a finite score, whatever the metric does. A package
that is not installed gives no score: a metric that touches it is answered as missing it.

Input: a JSON line per order, with the metric's name and its arguments; a file is its names and bytes. Output: a JSON
line per order, with a score, what was raised, or what is missing. Only what the environment has is imported.
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
LEFT_OUT = ("acoustid", "borb", "easyocr", "fastdtw", "fitz", "librosa", "pdfplumber")
OF_PDF = {"compare_pdfs"}  # they ask `fitz` for a page's text alone, with that of its fields: pypdf gives both
RUNS = {"check_python_file_by_test_suite"}  # it runs what the policy wrote beside itself: such a score can be forged
MARK = ".computerrl"  # of the environment, once it is whole; `published.py` holds its lock while this runs
NAMES = "names"  # the order that asks which metrics there are
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
    """What `fitz` opens: pages with their text."""

    def __init__(self, path: str) -> None:
        from pypdf import PdfReader

        self._pages = PdfReader(path).pages

    def __enter__(self) -> PdfText:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held open."""

    def __iter__(self) -> Iterator[types.SimpleNamespace]:
        return (types.SimpleNamespace(get_text=partial(page_text, page)) for page in self._pages)


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A function's code and that of the functions within it."""
    yield code
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from codes(part)


def lacking(function: types.FunctionType, seen: set[str]) -> str:
    """The first package that `function` or one that it calls needs and that is not here; "" where there is none."""
    seen.add(function.__name__)
    for name in (name for code in codes(function.__code__) for name in code.co_names):
        value = function.__globals__.get(name)
        if name in LEFT_OUT or isinstance(value, Missing):
            if name != "fitz" or function.__name__ not in OF_PDF:
                return name
        elif isinstance(value, types.FunctionType) and value.__module__.startswith("desktop_env"):
            found = "" if value.__name__ in seen else lacking(value, seen)
            if found:
                return found
    return ""


def named(metrics: types.ModuleType) -> list[str]:
    """The metrics that can be asked here."""
    found = {name: one for name, one in vars(metrics).items() if isinstance(one, types.FunctionType)}
    return sorted(name for name, one in found.items() if name not in RUNS and not lacking(one, set()))


def given(value: Any, folder: Path) -> Any:
    """An argument; a file is written into `folder` and becomes its path."""
    if isinstance(value, list):
        return [given(one, folder / str(number)) for number, one in enumerate(value)]
    if not isinstance(value, dict) or "files" not in value:
        return value
    folder.mkdir(parents=True)
    for name, data in value["files"].items():
        (folder / name).write_bytes(base64.b64decode(data))
    return str(folder / value["name"])


def judge(metrics: types.ModuleType, order: dict[str, Any]) -> dict[str, Any]:
    """The answer to one order."""
    metric = getattr(metrics, order["metric"], None)
    if metric is None or order["metric"] in RUNS:
        return {"missing": "not in the package"}
    touched.clear()
    with tempfile.TemporaryDirectory() as folder:
        arguments = [given(one, Path(folder) / str(number)) for number, one in enumerate(order["arguments"])]
        answer: dict[str, Any]
        try:
            score = float(metric(*arguments, **order["options"]))
            answer = {"score": score} if math.isfinite(score) else {"raised": f"no score but {score}"}
        except Exception as error:  # noqa: BLE001 - whatever a published metric raises is the answer
            said = f"{type(error).__name__}: {error}"[:200]
            answer = {"raised": said.encode("utf-8", "replace").decode()}
    return {"missing": touched[0]} if touched else answer


def apart(metrics: types.ModuleType, order: dict[str, Any]) -> dict[str, Any]:
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
            os.write(writing, json.dumps(judge(metrics, order)).encode() + b"\n")
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
    importlib.import_module("fitz").__dict__["open"] = PdfText
    metrics = importlib.import_module("desktop_env.evaluators.metrics")
    for line in sys.stdin:
        order = json.loads(line)
        answer = named(metrics) if order == NAMES else apart(metrics, order)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
