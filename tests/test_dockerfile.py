"""The Dockerfile by a linter, and the command that executes its steps in a fresh root: what it leaves is nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("wrong", ["ADD . /x", "COPY a b", "HEALTHCHECK NONE"])
def test_a_step_that_the_command_does_not_know_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=f"^{wrong}: this instruction is not known here"):
        fresh_root.inside(fresh_root.steps(f"FROM debian:12\n# x\n{wrong}\n"), {})
    with pytest.raises(ValueError, match=r"ubuntu:24\.04: expected FROM debian:"):
        fresh_root.debian(fresh_root.steps("FROM ubuntu:24.04\n"))


def test_an_image_holds_nothing_that_git_leaves_out() -> None:
    ignored = {line.removeprefix("**/").strip("/") for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines()}
    assert {line.strip("/") for line in (ROOT / ".gitignore").read_text("utf-8").splitlines()} | {".git"} <= ignored


WITHIN = """
import sys
from tests import fresh_root
with fresh_root.scratch() as root:
    lines = [f"mount -t tmpfs fresh-root-test {root}", f"mkdir {root}/x; echo at {root}", "sleep 987 & sleep 0.1"]
    sys.exit(fresh_root.execute([*lines, sys.argv[1]]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
@pytest.mark.parametrize(
    ("last", "signalled", "status"),
    [("exit 3", None, 3), ("sleep 988", signal.SIGTERM, 143), ("sleep 988", signal.SIGKILL, -9)],
)
def test_neither_mounts_nor_processes_nor_files_are_left(last: str, signalled: int | None, status: int) -> None:
    command = [sys.executable, "-c", WITHIN, last]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().rpartition(" at ")[2].strip())
        assert folder.name == "root"
        assert folder.parent.parent == Path("/var/tmp")
        if signalled is not None:
            process.send_signal(signalled)
        assert process.wait(60) == status
    if signalled == signal.SIGKILL:
        shutil.rmtree(folder.parent)
    assert not folder.parent.exists()
    assert "fresh-root-test" not in Path("/proc/mounts").read_text()
    until = time.monotonic() + 10
    while (left := sleeping()) and time.monotonic() < until:  # after SIGKILL the kernel ends them, one after the other
        time.sleep(0.05)
    assert not left


def sleeping() -> set[str]:
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
    return {"sleep 987", "sleep 988"} & set(listed)
