"""The HOME that desktops start with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from actors.desktop.providers import home
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
    home.write(tmp_path / "home", profile)
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
