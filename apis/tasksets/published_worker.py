"""The published metrics, asked in their own environment: `published.py` starts this file by its path.

Invariant: an order is judged in a process of its own, with bounded memory, processor time and files. A package that is
not installed gives no score: a metric that touches it is answered as missing it.

Input: a JSON line per order, with the metric's name and its arguments; a file is its names and bytes. Output: a JSON
line per order, with a score, what was raised, or what is missing. Only what the environment has is imported.
"""

from __future__ import annotations

import base64
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import resource
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

# Packages of pictures, sounds and PDF, 3 GB in all, that no metric here is about.
LEFT_OUT: tuple[str, ...] = (
    "PyPDF2",
    "acoustid",
    "borb",
    "cv2",
    "easyocr",
    "fastdtw",
    "fitz",
    "imagehash",
    "librosa",
    "mutagen",
)
LEFT_OUT += ("pdfplumber", "pypdf")
CPU_S, MEMORY_BYTES, FILE_BYTES = 20, 4 << 30, 64 << 20
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
    """Finds what is left out, after all else."""

    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in LEFT_OUT:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Missing:
        return Missing(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        del module  # nothing is there to run


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
    if metric is None:
        return {"missing": "not in the package"}
    touched.clear()
    with tempfile.TemporaryDirectory() as folder:
        arguments = [given(one, Path(folder) / str(number)) for number, one in enumerate(order["arguments"])]
        answer: dict[str, Any]
        try:
            answer = {"score": float(metric(*arguments, **order["options"]))}
        except Exception as error:  # noqa: BLE001 - whatever a published metric raises is the answer
            answer = {"raised": f"{type(error).__name__}: {error}"[:200]}
    return {"missing": touched[0]} if touched else answer


def apart(metrics: types.ModuleType, order: dict[str, Any]) -> dict[str, Any]:
    """The answer of a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        for what, most in (
            (resource.RLIMIT_CPU, CPU_S),
            (resource.RLIMIT_AS, MEMORY_BYTES),
            (resource.RLIMIT_FSIZE, FILE_BYTES),
        ):
            resource.setrlimit(what, (most, most))
        os.write(writing, json.dumps(judge(metrics, order)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return json.loads(said) if said else {"raised": f"ended with status {status}"}


def main() -> None:
    """Answer all orders. What the metrics print goes nowhere."""
    answers = os.fdopen(os.dup(1), "w")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    sys.meta_path.append(MissingFinder())
    metrics = importlib.import_module("desktop_env.evaluators.metrics")
    for line in sys.stdin:
        answers.write(json.dumps(apart(metrics, json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
