"""What was published stays readable: every file of figures and every bundled recording of before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from actors.cluster import cli
from actors.cluster.config import deploy_files
from actors.replay.demos import demo_files

DEPLOY = deploy_files.bundled()["local"].parent
FIGURES = sorted(path.relative_to(DEPLOY).as_posix() for path in (DEPLOY / "results").rglob("*.figures.gz"))


@pytest.mark.parametrize("figures", FIGURES)
def test_published_figures_still_tell_their_rounds(figures: str, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["report", str(DEPLOY / figures), "--json"])
    told = json.loads(capsys.readouterr().out)["figures"]
    assert told["rounds"], figures


@pytest.mark.slow
@pytest.mark.parametrize(("recording", "count"), [("local", 800), ("bc-alone", 3756)])
def test_bundled_recordings_still_hold_their_demonstrations(
    recording: str, count: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    copy = tmp_path / "copy.parquet"
    assert cli.main(["demos", "export", str(DEPLOY / "demos" / f"{recording}.parquet"), str(copy), "--json"]) == 0
    header, demos = demo_files.read(copy)
    assert header.demos == sum(1 for _ in demos) == count
