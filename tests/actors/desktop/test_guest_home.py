"""The HOME that desktops start with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from actors.desktop.providers import home, home_template
from runtime.errors import ConfigError

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


def test_a_finished_office_profile_is_found_and_given_to_every_home(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(home, "_PROJECT", tmp_path / "project")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert home.office_profile() is None
    for made in (home.user_template(), tmp_path / "project" / ".cache" / home.TEMPLATE):  # the second comes first
        profile = made / home.OFFICE_PROFILE
        (profile / "4").mkdir(parents=True)
        (profile / "4" / "settings").write_text(str(made))
        assert home.office_profile() == profile
    home.write(tmp_path / "home", home.finished())
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


def test_finished_profiles_of_other_programs_are_given_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "_PROJECT", tmp_path / "project")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    session = home.user_template() / ".config/GIMP/2.10/sessionrc"
    session.parent.mkdir(parents=True)
    session.write_text('(position 200 620)\n(size 1024 768)\n(maximized "no")\n')
    home_template._finish_gimp(session.parent.parent)
    home.write(tmp_path / "home", home.finished())
    given = (tmp_path / "home" / ".config/GIMP/2.10/sessionrc").read_text()
    assert given == '(position 0 0)\n(size 1024 768)\n(maximized "yes")\n'
    assert not (tmp_path / "home" / home.OFFICE_PROFILE).exists()


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
