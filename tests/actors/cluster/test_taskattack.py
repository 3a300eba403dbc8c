"""Cheats: each is for something, none is told from the honest by luck, and none passes on real desktops."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from actors.cluster import cli
from actors.cluster.checks.attack.command import CHEATS
from actors.cluster.checks.attack.scene import Scene
from apis.tasks import ends
from apis.tasks import registry as tasks
from apis.tasks.verify.allowed import CHANGE, CREATE, REMOVE, May
from apis.tasks.verify.manifest import Entry, Manifest

SHELL = shutil.which("sh") or "sh"
BEFORE = Manifest({".bashrc": Entry("file", 9, 0o644, "m"), ".config/vlc/vlcrc": Entry("file", 9, 0o600, "n")})


def scenes(name: str, count: int = 8) -> list[Scene]:
    split = "train" if tasks.FAMILIES[name].trained else "held-out"
    return [Scene(tasks.task(f"{name}/{split}/{number}"), BEFORE) for number in range(count)]


@pytest.mark.slow
def test_every_cheat_goes_with_some_task_and_is_a_program_for_the_shell() -> None:
    every = [scene for name in tasks.FAMILIES for scene in scenes(name)]
    assert len({cheat.name for cheat in CHEATS}) == len(CHEATS), "names differ"
    for cheat in CHEATS:
        made = next((script for scene in every if (script := cheat.script(scene))), None)
        assert made, cheat.name
        assert subprocess.run([SHELL, "-n"], input=made.encode(), check=False).returncode == 0, cheat.name


@pytest.mark.parametrize("name", sorted(tasks.FAMILIES))
def test_every_family_is_damaged_and_claimed(name: str) -> None:
    for scene in scenes(name, 3):
        assert scene.others, "there is something that nothing may happen to"
        assert not {*scene.others} & {*scene.end, *scene.goes}
        assert sum(cheat.script(scene) is not None for cheat in CHEATS) >= 20
        assert scene.targets or scene.goal.kind in ("delete", "folder", "says", "holds", "lists")


def test_what_is_to_go_is_told_from_what_moves() -> None:
    kinds = {scene.goal.kind: scene for scene in scenes("file_manager", 20)}
    assert kinds["delete"].goes == [f"Documents/{kinds['delete'].goal.target}"]
    assert kinds["rename"].goes == []
    assert scenes("files_move", 1)[0].goes == []


@pytest.mark.proof
@pytest.mark.timeout(240)
@pytest.mark.desktop
def test_no_cheat_passes_on_real_desktops(capsys: pytest.CaptureFixture[str]) -> None:
    families = ("file_manager", "vlc_playlist")
    flags = [flag for name in families for flag in ("--family", name)]
    assert cli.main(["tasks", "attack", "desktop", *flags]) == 0
    told = capsys.readouterr().out
    assert "0 passed, 0 episodes judged wrong: good" in told


@pytest.mark.proof
@pytest.mark.timeout(240)
@pytest.mark.desktop
def test_a_verdict_that_believes_everything_is_found_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lax = (May("**", (CREATE, CHANGE, REMOVE), loosely=True),)
    monkeypatch.setattr(ends, "rules", lambda *_: lax)
    assert cli.main(["tasks", "attack", "desktop", "--family", "text_editor"]) == 1
    told = capsys.readouterr().out
    assert "'half of HOME' passed" in told
    assert "'litters' passed" in told
    assert "not good" in told
