"""The template package as a stranger has it: installed by pip, listed, played, trained on for a step, removed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

TEMPLATE = Path(__file__).resolve().parents[1] / "template"
MINE = """
extends: smoke
run: {require: {rl_steps: 1}}
tasks:
  train: [{family: say_yes, split: train, count: 16, first: 1000}]
  demo: [{family: say_yes, split: train, count: 32}]
  eval: [{family: say_yes, split: held-out, count: 2}]
demos: {count: 24}
desktops: {count: 4, warm_pool: 2, screenshots: none}
entropulse: {bc_steps: 40}
"""
Do = Callable[..., str]


@pytest.fixture
def do(tmp_path: Path) -> Do:
    """Runs a module in an environment that sees this one's packages, and into which pip installs."""
    home = tmp_path / "venv"
    venv.create(home, symlinks=True)
    python = home / "bin/python"
    ours = sysconfig.get_path("purelib")
    theirs = sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)})
    (Path(theirs) / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")

    def run(*words: str) -> str:
        pip = words[0] == "pip"
        command = [sys.executable, "-m", "pip", "--python", str(python)] if pip else [str(python), "-P", "-m"]
        command += [*words[1:]] if pip else ["actors.cluster.cli", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=1500)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.mark.proof
@pytest.mark.desktop
@pytest.mark.timeout(1600)
def test_a_package_of_tasks_is_installed_played_trained_on_and_removed(tmp_path: Path, do: Do) -> None:
    shutil.copytree(TEMPLATE, tmp_path / "mine", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "mine.yaml").write_text(MINE)
    do("pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation", "./mine")
    assert "of other packages: say_yes (computerrl-template 1.0)" in do("tasks", "list")
    assert "solved" in do("tasks", "check", "say_yes", "--split", "train", "--instances", "1")
    assert "run mine: ok" in do("run", "mine.yaml", "--name", "mine")  # `run.require` has a step of RL
    do("pip", "uninstall", "-q", "-y", "computerrl-template")
    assert "say_yes" not in do("tasks", "list")
