"""Where VS Code is looked for, and what is said where it is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from actors.cluster import doctor
from actors.desktop.providers import editor


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the editor below one that anybody may pass."""
    for each in (tmp_path, *tmp_path.parents):
        if each.owner() == Path.home().owner() and each != Path("/") and not each.stat().st_mode & 0o001:
            each.chmod(each.stat().st_mode | 0o001)
    place = tmp_path / "below" / "vscode"
    place.mkdir(parents=True)
    monkeypatch.setenv(editor.PLACE, str(place))
    return place


def test_an_editor_counts_once_set_up_has_ended(folder: Path) -> None:
    assert editor.place() is None
    assert (editor.lacking(), editor.mend()) == ("VS Code is not set up", "make vscode")
    (folder / editor.STAMP).touch()
    assert editor.place() == folder
    check = doctor.check_editor()
    assert (check.ok, check.found, check.fatal) == (True, str(folder), False)


@pytest.mark.skipif(os.geteuid() != 0, reason="desktops have users of their own only as root")
def test_an_editor_that_desktops_can_not_reach_is_none(folder: Path) -> None:
    (folder / editor.STAMP).touch()
    folder.parent.chmod(0o700)
    assert editor.place() is None
    assert editor.lacking().endswith(f"{folder.parent} is closed to them")
    check = doctor.check_editor()
    assert not check.ok
    assert not check.fatal
    assert check.mend == "export COMPUTERRL_VSCODE=/opt/computerrl-vscode; make vscode"
