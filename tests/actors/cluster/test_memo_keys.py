"""Which settings a memo can't hold for."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.cluster import cli

REFUSED = {
    "desktops.memo_file": ["desktops.memo=on", "desktops.memo_file=memo.json"],
    "prompt.format": ["desktops.memo=on", "prompt.format=published"],
    "tasks.eval": ["desktops.memo=on", "tasks.eval=[{set: files}]"],
    "desktops.provider": ["desktops.memo=on", "desktops.provider={type: ssh, machines: []}"],
    "desktops.memo": ["desktops.memo=sometimes"],
}


@pytest.mark.parametrize("key", REFUSED)
def test_what_a_memo_does_not_hold_for_is_refused(key: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    given = [word for one in REFUSED[key] for word in ("--set", one)]
    assert cli.main(["run", "smoke", "--dry-run", "--runs", str(tmp_path), *given]) == 2
    assert key in capsys.readouterr().err


def test_on_is_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("extends: smoke\ndesktops: {memo: on}\n")
    assert cli.main(["run", str(file), "--print", "--runs", str(tmp_path)]) == 0
    assert "memo: 'on'" in capsys.readouterr().out.replace('"', "'")
