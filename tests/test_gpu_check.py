"""Every part of the check of a GPU runs on a tiny shape, here without a card; a part that fails is written down."""

from __future__ import annotations

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
    assert gpu_check.main(["--tiny", str(model), "--out", str(page)]) == 0, capsys.readouterr().out
    text = page.read_text("utf-8")
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == list(gpu_check.PARTS)
    assert "learner bfloat16, engine float32: " in text
    assert "adapter: " in text
    assert "LoRA 4, 64 tokens" in text
    assert "GiB, peak unknown" in text

    def broken(*_: object) -> None:
        raise RuntimeError("no card")

    monkeypatch.setattr(gpu_check, "PARTS", {"Memory": broken, "Run": gpu_check.run_part})
    assert gpu_check.main(["--tiny", str(model), "--out", str(page)]) == 1
    assert "**failed**: RuntimeError: no card" in page.read_text("utf-8")
    assert "not asked for" in page.read_text("utf-8")
    monkeypatch.setattr(gpu_check, "LIMIT_S", -1.0)
    gpu_check.main(["--tiny", str(model), "--out", str(page)])
    assert "not run: no time was left" in page.read_text("utf-8")
