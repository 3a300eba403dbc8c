"""Whole commands for tests, whose runs are played by no desktop."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

import runtime.system
from actors.cluster import cli
from actors.cluster.config import deploy_files
from actors.cluster.runs import compose, doctor, execute, loop
from actors.cluster.runs import run as runcommand
from actors.cluster.runs.run_folder import RunRecord
from runtime.program import program

FILE = """
tasks:
  train: [file_manager/train/1000]
  demo: [file_manager/train/1]
demos: {count: 1}
evaluation: {enabled: false}
"""
AT = ("--runs", "my runs")


def planned(name: str, *overrides: str) -> compose.Plan:
    """The plan of a deploy file that trains."""
    return loop.training().planned(deploy_files.load(name, overrides)[0], run_dir=Path("run"), incarnation="i")


class Broken:
    """Whole runs, that no desktop plays: each is interrupted the first time it is started, and done the second time."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.verdict = "ok"  # of the second time

    def __call__(self, record: RunRecord) -> tuple[str, str | None]:
        self.begun.append(record.name)
        if not record.resumed:
            raise KeyboardInterrupt
        return self.verdict, None


def unplayed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Broken:
    """Whole commands in `folder`, whose runs no desktop plays."""
    found = Broken()
    monkeypatch.setattr(runcommand, "_needs", lambda _: None)
    for name in ("examine", "check_offices"):
        monkeypatch.setattr(doctor, name, lambda _: [])
    for name in ("plan", "recording", "evaluating"):
        monkeypatch.setattr(compose, name, lambda *_, **__: SimpleNamespace(caution=""))
    monkeypatch.setattr(execute, "execute", lambda _plan, record, _job: record)
    monkeypatch.setattr(runtime.system, "run", found)
    monkeypatch.chdir(folder)
    Path("my file.yaml").write_text(FILE)
    return found


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The words of the last line that was printed to continue."""
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("continue with  ")]
    started, *words = shlex.split(lines[-1].removeprefix("continue with  "))
    assert shlex.quote(started) == program()
    return words


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(words) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    return shown
