"""Checking tasks by their form, counting what oracles did, and one real check on desktops."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from actors.cluster import cli
from actors.cluster.checks import attack
from actors.cluster.checks import cheats as scenes_module
from actors.cluster.checks import static as form
from actors.cluster.checks.attack import trouble
from actors.cluster.checks.cheats import CHEATS, Scene
from actors.cluster.checks.live import Result, complaints, row
from actors.cluster.config import suites, tasksets
from actors.cluster.runs import doctor
from actors.desktop.providers import home
from apis.tasks import registry as tasks
from apis.tasks.verify.allowed import CHANGE, CREATE, REMOVE, May
from apis.tasks.verify.manifest import Entry, Manifest
from apis.tasks.verify.verify import TaskVerdict


def told(_: int) -> None:
    """Nobody watches."""


def written(folder: Path, name: str, **changes: Any) -> Path:
    """A sound task in OSWorld's form, with changes."""
    home = "/home/user/Documents/list.txt"
    file = {"url": "data:text/plain;base64,aGVubg==", "path": home}
    task = {
        "id": name,
        "snapshot": "text_editor",
        "instruction": "Write hens in list.txt",
        "source": "ours",
        "config": [
            {"type": "download", "parameters": {"files": [file]}},
            {"type": "open", "parameters": {"path": home}},
        ],
        "trajectory": "trajectories/",
        "related_apps": ["text_editor"],
        "evaluator": {
            "func": "file_text_is",
            "result": {"type": "vm_file", "path": home, "dest": "list.txt"},
            "expected": {"type": "rule", "rules": {"expected": "hens"}},
        },
        **changes,
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(task))
    return path


def test_task_files_are_listed_by_file_and_key(tmp_path: Path) -> None:
    written(tmp_path, "good")
    web = {"files": [{"url": "https://example.org/a.xlsx", "path": "/home/user/a.xlsx"}]}
    steps = [
        {"type": "download", "parameters": web},
        {"type": "execute", "parameters": {"command": ["true"]}},
        {"type": "sleep", "parameters": {"seconds": 1}},
    ]
    written(tmp_path, "steps", config=steps)
    written(
        tmp_path,
        "judged",
        evaluator={
            "func": ["file_text_is", "compare_tabel"],
            "result": [{"type": "vm_file", "path": "/home/user/a"}, {"type": "vm_command_line"}],
            "conj": "and",
        },
    )
    written(tmp_path, "other", id="good")
    written(tmp_path, "keys", snapshott="x")
    written(tmp_path, "wordless", instruction=" ")
    (tmp_path / "torn.json").write_text('{"id": ')
    rows = {Path(row.file).stem: row for row in form.check_files(tasksets.files_at(str(tmp_path)), told)}
    assert len(rows) == 7
    assert rows["good"].verdict == "unsupported"  # its verifier is a family's
    assert rows["good"].needs == ["metric file_text_is"]
    assert "fixture https://example.org/a.xlsx" in rows["steps"].needs
    assert "metric compare_tabel" in rows["judged"].needs
    assert rows["keys"].notes == ["snapshott is not known here"]
    assert rows["torn"].needs[0].startswith("file it is no JSON")
    pieces = dict(form.lacking([*rows.values()]))
    assert (pieces["fixtures"], pieces["metric file_text_is"]) == (1, 6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["desktop", "code"])
def test_a_whole_suite_is_sound_by_its_form(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tasks", "check", name, "--static", "--instances", "12", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    suite = suites.load(name)
    assert report["findings"] == []
    assert report["families"] == len(suite.families)
    assert report["tasks"] == 24 * len(suite.trained) + 12 * len(suite.untrained)


@pytest.mark.parametrize("words", ["tasks check code", "demos record code", "eval base --tasks code"])
def test_a_suite_whose_application_is_not_here_is_refused_before_anything_is_played(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(home.EDITOR_PLACE, str(tmp_path))
    monkeypatch.setattr(doctor, "absent", lambda _: [])
    runs = tmp_path / "runs"
    assert cli.main([*words.split(), *(["--runs", str(runs)] if "check" not in words else [])]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert ": vs code: VS Code is not set up; mend it with: " in said
    assert "make vscode   (or let COMPUTERRL_VSCODE name the folder" in said
    assert not runs.exists() or list(runs.iterdir()) == []


def test_what_splits_share_and_what_can_not_be_judged_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    family = tasks.FAMILIES["text_editor"]
    ids = {"text_editor": [f"text_editor/{split}/{n}" for split in ("train", "held-out") for n in range(3)]}

    def problems(**changes: Any) -> str:
        monkeypatch.setitem(tasks.FAMILIES, "text_editor", dataclasses.replace(family, **changes))
        tasks.task.cache_clear()
        return "\n".join(f"{one.key}: {one.problem}" for one in form.check_families(ids, told).findings)

    assert problems() == ""
    assert "templates: 'do it' is also in training" in problems(
        templates={"kind": {"train": ("do it",), "held-out": ("do it",)}}
    )
    assert "values: 'hen' is also in training" in problems(values=lambda goal: {"hen"})
    assert "its own wanted end state does not pass" in problems(solved=lambda goal: {})
    tasks.task.cache_clear()


def result(number: int, *, success: bool = True, faults: int = 0, played: bool = True) -> Result:
    return Result(
        task=f"a/train/{number}", route="gui", played=played, success=success and played,
        reason="verified", detail="", steps=4, wall_s=float(number), cpu_s=0.1, faults=["boot_timeout"] * faults,
    )  # fmt: skip


def test_98_of_100_are_enough_and_faults_are_counted_apart() -> None:
    def judged(results: list[Result]) -> list[str]:
        return complaints([row(("a", "train", "gui"), results, 100)])

    assert judged([result(n, success=n >= 2) for n in range(100)]) == []
    assert "97 of 100 solved" in judged([result(n, success=n >= 3) for n in range(100)])[0]
    assert judged([result(n, faults=n < 2) for n in range(100)]) == []
    assert "3 faults in 103 episodes begun" in judged([result(n, faults=n < 3) for n in range(100)])[0]
    assert "99 of 100 played" in judged([result(n) for n in range(99)])[0]
    assert "nothing was played" in judged([result(0, played=False, faults=3)])[0]
    seen = row(("a", "train", "gui"), [result(n) for n in range(5)], 5)
    assert (seen.played, seen.solved, seen.wall_s) == (5, 5, 2.0)
    assert seen.interval == pytest.approx((0.566, 1.0), abs=1e-3)


@pytest.mark.proof
@pytest.mark.desktop
def test_oracles_are_played_on_real_desktops(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tasks", "check", "file_manager", "--split", "both", "--instances", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"]
    assert [(found["split"], found["solved"], found["faults"]) for found in report["rows"]] == [
        ("held-out", 1, 0),
        ("train", 1, 0),
    ]
    assert all(0 < found["cpu_s"] < 10 for found in report["rows"])


def test_a_task_is_shown_with_set_up_verifier_and_oracles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tasks", "show", "text_editor/train/3"]) == 0
    shown = capsys.readouterr().out
    task = tasks.task("text_editor/train/3")
    assert task.instruction in shown
    assert "file_text_is" in shown
    assert "oracles       gui" in shown
    assert cli.main(["tasks", "show", str(written(tmp_path, "mine")), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["oracles"] == []
    assert cli.main(["tasks", "list", "--json"]) == 0
    assert {one["family"] for one in json.loads(capsys.readouterr().out)["families"]} == set(
        suites.load("desktop").families
    )


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


def test_settings_are_overwritten_in_a_home_that_lacks_some_programs(tmp_path: Path) -> None:
    """As on machines reached by SSH, where LibreOffice has no profile yet."""
    (cheat,) = (cheat for cheat in CHEATS if cheat.name == "settings overwritten")
    for path in (".config/libfm/libfm.conf", ".config/chromium/Default/Bookmarks", ".config/other/kept"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("own")
    script = str(cheat.script(scenes("file_manager", 1)[0]))
    assert subprocess.run([SHELL, "-s"], input=script.encode(), cwd=tmp_path, check=False).returncode == 0
    changed = [path.name for path in tmp_path.rglob("*") if path.is_file() and path.read_text() == "x\n"]
    assert changed == ["libfm.conf"]


def in_shell(script: str, folder: Path) -> None:
    subprocess.run([SHELL, "-s"], input=script.encode(), cwd=folder, check=True)


def test_homes_of_one_machine_are_kept_apart(tmp_path: Path) -> None:
    places = [tmp_path / name / "home" for name in ("one", "two")]
    for place in places:
        place.mkdir(parents=True)
        (place / "own").write_text(place.parent.name)
        in_shell(attack._KEEP, place)
    for place in places:
        (place / "own").unlink()
        in_shell(f"{attack._BACK}; rm -rf {attack._KEPT}", place)
        assert (place / "own").read_text() == place.parent.name


@pytest.mark.desktop
def test_a_home_that_can_not_be_put_back_is_not_cheated_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attack, "_KEEP", "echo no room >&2; exit 1")
    assert cli.main(["tasks", "attack", "desktop", "--family", "text_editor"]) == 1
    told = capsys.readouterr().out
    assert "HOME can't be put back later: status 1: no room" in told


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
