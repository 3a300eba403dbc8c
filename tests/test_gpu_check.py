"""Every part of the check of a GPU runs on a tiny shape, here without a card; a part that fails is written down."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tests import gpu_check
from tests.policy import tiny_models


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
