"""What other machines are given: the Dockerfile and its steps in a fresh root, and the check of a GPU, part by part."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from tests import fresh_root, gpu_check
from tests.policy import tiny_models

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")


def test_a_linter_finds_nothing_in_the_dockerfile() -> None:
    command = [Path(sys.prefix, "bin", "hadolint"), "--no-color", "-"]
    done = subprocess.run(command, input=DOCKERFILE, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


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


@pytest.mark.engine
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_part_runs_on_a_tiny_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tiny_models.write(tmp_path / "tiny", "qwen2")
    page = tmp_path / "page.md"
    monkeypatch.setattr(gpu_check, "runs_of", lambda _: ["learn --dry-run", "lern"])  # its real runs take minutes
    parts = dict(gpu_check.PARTS)
    monkeypatch.setattr(gpu_check, "PARTS", {name: part for name, part in parts.items() if name != "Run"})
    assert gpu_check.main(["--tiny", str(model), "--out", str(page)]) == 0, capsys.readouterr().out
    text = page.read_text("utf-8")
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == list(gpu_check.PARTS)
    assert "learner bfloat16, engine float32: " in text
    assert "adapter: " in text
    assert "LoRA 4, 64 tokens" in text
    assert "GiB, peak unknown" in text

    def broken(*_: object) -> None:
        raise RuntimeError("no card")

    monkeypatch.setattr(gpu_check, "PARTS", {"Memory": broken, "Run": parts["Run"]})
    assert gpu_check.main(["--tiny", str(model), "--out", str(page)]) == 1
    assert "**failed**: RuntimeError: no card" in page.read_text("utf-8")
    assert "- `computerrl run learn --dry-run`: " in page.read_text("utf-8")
    assert "**failed**: `computerrl run lern`: " in page.read_text("utf-8")
    monkeypatch.setattr(gpu_check, "LIMIT_S", -1.0)
    gpu_check.main(["--tiny", str(model), "--out", str(page)])
    assert "not run: no time was left" in page.read_text("utf-8")


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_rl_steps_on_remembered_desktops_by_each_engine_that_is_here(tmp_path: Path) -> None:
    wanted = argparse.Namespace(run=[], tiny="")
    lines = list(gpu_check.run_part(wanted, tmp_path))
    assert len(lines) == len(list(gpu_check.runs_of(wanted)))
    assert not any("**failed**" in line for line in lines)
