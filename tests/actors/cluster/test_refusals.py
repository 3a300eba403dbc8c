"""What no command can do is refused in one line that names what is wrong: the table is `refusals.yaml`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from actors.cluster import cli

REFUSALS: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("refusals.yaml").read_text("utf-8"))


def put(path: Path, text: str, *, folder: bool) -> None:
    """Lay a file, a folder, or a link where the text is an arrow to its target."""
    (path if folder else path.parent).mkdir(parents=True, exist_ok=True)
    if text.startswith("-> "):
        path.symlink_to(text.removeprefix("-> "))
    elif not folder:
        path.write_text(text)


@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: row["run"])
def test_what_can_not_be_done_is_one_line_and_leaves_nothing(
    row: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cli.build_parser.cache_clear()  # it names the program as the folder before saw it
    for name, text in row.get("given", {}).items():
        put(tmp_path / name, text, folder=name.endswith("/"))
    before = sorted(tmp_path.rglob("*"))
    words = shlex.split(re.sub(r"<(\d+)>", lambda letters: "x" * int(letters[1]), row["run"]))
    try:
        status = cli.main(words)
    except SystemExit as ended:
        status = int(ended.code or 0)
    shown = capsys.readouterr()
    said = shown.err
    assert (status, said.count("\n")) == (2, 1), said
    assert re.search(".*".join(map(re.escape, row["says"].split("*"))), said), said
    assert "secret" not in said, "a password is not repeated"
    assert sorted(tmp_path.rglob("*")) == before
