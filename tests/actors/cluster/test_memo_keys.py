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
    "demos.count": ["desktops.memo=only"],
}


@pytest.mark.parametrize("key", REFUSED)
def test_what_a_memo_does_not_hold_for_is_refused(key: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    given = [word for one in REFUSED[key] for word in ("--set", one)]
    assert cli.main(["run", "smoke", "--dry-run", "--runs", str(tmp_path), *given]) == 2
    assert key in capsys.readouterr().err


def test_a_file_that_is_no_memo_is_refused_before_the_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.parquet"
    file.write_text("no memo")
    given = ["--set", "desktops.memo=on", "--set", f"desktops.memo_file={file}"]
    assert cli.main(["run", "smoke", "--dry-run", "--runs", str(tmp_path), *given]) == 2
    printed = capsys.readouterr()
    assert not printed.out
    assert f"desktops.memo_file: {file}" in printed.err


def test_on_is_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("extends: smoke\ndesktops: {memo: on}\n")
    assert cli.main(["run", str(file), "--print", "--runs", str(tmp_path)]) == 0
    assert "memo: 'on'" in capsys.readouterr().out.replace('"', "'")
