"""The file that shows learning: what it begins from is bundled, and its plan has a round before, between and after."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.cluster import cli
from actors.cluster.config import models
from actors.desktop import memo
from actors.desktop.memo_file import read


def test_learn_begins_from_bundled_weights_and_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # its recording is bundled, too
    assert cli.main(["run", "learn", "--dry-run", "--runs", str(tmp_path)]) == 0
    plan = capsys.readouterr().out
    assert "20 steps of RL in 2 phases, 1 x 200 steps of pulse" in plan
    assert "at the beginning, after each pulse and at the end: 200 instances" in plan
    assert "lines are of such desktops" in plan
    assert models.locate("cloned") != models.locate("base")
    assert models.fingerprint(models.locate("cloned")) == models.fingerprint(models.locate("base"))


def test_the_bundled_memo_is_whole_and_small() -> None:
    assert memo.BUNDLED.stat().st_size < 4 << 20
    assert all(line.scope.startswith("3/compact/") for line in read(memo.BUNDLED))
