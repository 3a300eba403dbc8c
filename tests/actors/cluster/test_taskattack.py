"""Cheats: each is for something, none is told from the honest by luck, and none passes on real desktops."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from actors.cluster import cli
from actors.cluster.checks import cheats as scenes_module
from actors.cluster.checks.attack import trouble
from actors.cluster.checks.cheats import CHEATS, Scene
from apis.tasks import registry as tasks
from apis.tasks.verify.allowed import CHANGE, CREATE, REMOVE, May
from apis.tasks.verify.manifest import Entry, Manifest
from apis.tasks.verify.verify import TaskVerdict

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


def test_a_cheat_that_was_not_really_tried_counts_neither_as_passed_nor_as_refused() -> None:
    passes, fails = TaskVerdict(success=True, reason="why"), TaskVerdict(success=False, reason="why")
    cheats = {cheat.name: cheat for cheat in CHEATS}
    cheat, again = cheats["litters"], cheats["saved once more"]
    assert not trouble(cheat, "", fails, changed=True)
    assert "status 1" in trouble(cheat, "status 1: no such file", fails, changed=True)
    assert "nothing" in trouble(cheat, "", fails, changed=False)
    assert not trouble(cheats["claims"], "", fails, changed=False)
    assert "why" in trouble(again, "", fails, changed=True)
    assert not trouble(again, "", passes, changed=True)


@pytest.mark.parametrize("ending", ["docx", "xlsx", "odp"])
def test_an_edit_of_a_document_that_does_not_apply_ends_with_a_status(ending: str, tmp_path: Path) -> None:
    families = {"docx": "writer_text", "xlsx": "calc_cell", "odp": "slides_text"}
    scene = scenes(families[ending], 1)[0]
    document = tmp_path / scene.targets[0]
    document.parent.mkdir()
    with zipfile.ZipFile(document, "w") as archive:
        archive.writestr("mimetype", "nothing to edit")
    was = document.read_bytes()
    edits = [cheat for cheat in CHEATS if cheat.name.startswith(ending)]
    assert len(edits) >= 4
    for cheat in edits:
        if "xl/vbaProject.bin" in (script := str(cheat.script(scene))):
            continue  # adds a part and edits none
        done = subprocess.run([SHELL, "-s"], input=script.encode(), cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode, cheat.name
        assert document.read_bytes() == was


@pytest.mark.proof
@pytest.mark.timeout(240)
@pytest.mark.desktop
def test_no_cheat_passes_on_real_desktops(capsys: pytest.CaptureFixture[str]) -> None:
    families = ("file_manager", "vlc_playlist")
    flags = [flag for name in families for flag in ("--family", name)]
    assert cli.main(["tasks", "attack", "desktop", *flags]) == 0
    told = capsys.readouterr().out
    assert "0 passed, 0 not really tried, 0 episodes judged wrong: good" in told


@pytest.mark.proof
@pytest.mark.timeout(240)
@pytest.mark.desktop
def test_a_verdict_that_believes_everything_is_found_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lax = (May("**", (CREATE, CHANGE, REMOVE), loosely=True),)
    for module in (tasks, scenes_module):
        monkeypatch.setattr(module, "rules_of", lambda *_: lax)
    assert cli.main(["tasks", "attack", "desktop", "--family", "text_editor"]) == 1
    told = capsys.readouterr().out
    assert "'half of HOME' passed" in told
    assert "'litters' passed" in told
    assert "not good" in told
