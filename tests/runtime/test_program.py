"""The program's name in hints: pasted into the shell that showed it, it starts the same program."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.program import program


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name in a folder whose name a shell would take apart."""
    own = tmp_path / "my project" / ".venv" / "bin" / "computerrl"
    own.parent.mkdir(parents=True)
    own.write_text('#!/bin/sh\necho "own $*"\n')
    own.chmod(0o755)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(sys, "argv", [str(own), "run"])
    return own


@pytest.mark.parametrize(
    ("here", "on_path", "named"),
    [
        (".venv/bin/../..", False, ".venv/bin/computerrl"),
        (".venv/bin", False, "./computerrl"),
        ("runs/one/logs/deep/below/in/the/project", False, None),
        ("..", False, "'my project/.venv/bin/computerrl'"),
        ("..", True, "computerrl"),
    ],
)
def test_a_hint_can_be_pasted(
    installed: Path, monkeypatch: pytest.MonkeyPatch, here: str, on_path: bool, named: str | None
) -> None:
    folder = installed.parents[2] / here
    folder.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(folder)
    if on_path:
        monkeypatch.setenv("PATH", f"{installed.parent}:/usr/bin:/bin")
    assert named in (program(), None)
    said = subprocess.run(f"{program()} status last", shell=True, capture_output=True, text=True, check=True).stdout
    assert said == "own status last\n"


def test_another_program_of_that_name_on_path_is_not_meant(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other" / "computerrl"
    other.parent.mkdir()
    other.write_bytes(installed.read_bytes())
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{other.parent}:/usr/bin:/bin")
    monkeypatch.chdir(installed.parent.parent)
    assert program() == "bin/computerrl"


def test_a_module_started_by_python_names_the_program_beside_that_python(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/elsewhere/cli.py"])
    monkeypatch.setattr(sys, "executable", str(installed.with_name("python")))
    monkeypatch.chdir(installed.parents[2])
    assert program() == ".venv/bin/computerrl"
    installed.unlink()
    assert program() == "computerrl"


def test_in_a_folder_that_was_removed_the_whole_path_is_named(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert program() == shlex.quote(str(installed))
    os.chdir(tmp_path)
