"""The Dockerfile by a linter, and the command that executes its steps in a fresh root: what it leaves is nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests import fresh_root

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")


def lint(text: str) -> tuple[int, str]:
    command = [Path(sys.prefix, "bin", "hadolint"), "--no-color", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_a_linter_finds_nothing_in_the_dockerfile_and_what_is_wrong_in_another() -> None:
    assert lint(DOCKERFILE) == (0, "")
    code, said = lint(DOCKERFILE.replace("debian:12-slim", "debian").replace("--no-install-recommends ", ""))
    assert code == 1
    assert "DL3006" in said
    assert "DL3015" in said


def test_the_steps_are_set_up_as_root_and_a_run_as_a_user_without_rights() -> None:
    given = fresh_root.steps(DOCKERFILE)
    assert fresh_root.debian(given) == "bookworm"
    run = [line for line in fresh_root.inside(given, {"PIP_FIND_LINKS": "/a b"}) if line.startswith("setpriv")]
    assert [line.split()[2] for line in run] == ["root", "root", "computerrl"]
    assert "make setup" in run[1]
    assert "PIP_FIND_LINKS='/a b'" in run[1]
    assert run[2].endswith("sh -c '.venv/bin/computerrl run smoke'")


def test_the_image_for_gpus_adds_sglang_and_compilers() -> None:
    gpu = [line for line in fresh_root.inside(fresh_root.steps(DOCKERFILE, "gpu"), {}) if line.startswith("setpriv")]
    assert [line.split()[2] for line in gpu] == ["root", "root", "root", "root", "computerrl"]
    assert "g++" in gpu[2]
    assert "make sglang-gpu" in gpu[3]
    assert gpu[4].endswith("'.venv/bin/computerrl doctor gpu-1'")


def test_an_image_holds_nothing_that_git_leaves_out() -> None:
    ignored = {line.removeprefix("**/").strip("/") for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines()}
    assert {line.strip("/") for line in (ROOT / ".gitignore").read_text("utf-8").splitlines()} | {".git"} <= ignored
