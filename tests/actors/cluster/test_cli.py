from __future__ import annotations

import inspect
import re
import shlex
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from actors.cluster import cli
from actors.cluster.commands import COMMANDS
from actors.cluster.config import models
from actors.cluster.evaluate import settings
from actors.front.library import TaskHandle
from actors.replay.demos import demo_files
from actors.replay.demos import format as demo_format
from actors.replay.demos.format import Demo, DemoStep, RecordingHeader, digest_of_step
from apis.observation import OBSERVATION_VERSION
from runtime.errors import ConfigError
from runtime.program import check_origin, program
from tests.actors.cluster.unplayed import refused
from tests.actors.replay.ledger_tools import payload


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_within_the_terminal(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "examples:" in shown
    assert f"computerrl {command}" in shown
    assert all(f"{program()} " in line for line in shown.splitlines() if len(line) > 80), "only what is pasted"


def test_every_command_names_a_function_that_takes_its_arguments() -> None:
    tables = [of for command in COMMANDS.values() for of in (command, *command.get("verbs", {}).values())]
    for of in tables:
        assert ("main" in of) is not ("verbs" in of), of["summary"]
        if "main" in of:
            module, _, name = of["main"].partition(":")
            given = ("folder", *of["takes"]) if "takes" in of else ("args",)
            keywords = dict.fromkeys((*given[1:], "as_json"), "") if "takes" in of else {}
            inspect.signature(getattr(import_module(f"actors.{module}"), name)).bind(given[0], **keywords)


def test_it_says_which_build_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"computerrl {version('computerrl')} build {check_origin().build}\n"


def test_the_command_line_starts_fast() -> None:
    code = (
        "import sys, actors.cluster.cli as c; c.build_parser(); "
        "sys.exit(any(m in sys.modules for m in ('torch', 'yaml', 'rich', 'aiohttp')))"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cli.build_parser.cache_clear()  # it names the program as the folder before saw it


def step() -> DemoStep:
    stored = payload()
    return DemoStep(digest=digest_of_step(stored), well_formed=True, payload=stored)


def written(task: str = "text_editor/train/1", steps: int = 1, **header: Any) -> str:
    """A file of one demonstration."""
    said = {"tokenizer": models.fingerprint(models.bundled()), "form": "compact", "actions": "both", **header}
    demo = Demo(task=task, route="gui", reason="done", wall_s=1.0, busy_s=1.0, steps=[step()] * steps)
    demo_files.write(Path("demos.parquet"), RecordingHeader(format=demo_format.FORMAT, demos=1, **said), [demo])
    return "demos.parquet"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"task": "nosuch/train/1"}, "there is no task nosuch/train/1"),
        ({"task": "text_editor/train/01"}, "its number is one from 0"),
        ({"tokenizer": "0123"}, "was recorded with tokenizer 0123"),
        ({"actions": "foo"}, "names actions 'foo'; known: both, gui, api"),
        ({"form": "publishd"}, "names form 'publishd'; did you mean published?"),
        ({"actions": "both"}, "actions both, prompt.action_space is gui: record again"),
    ],
)
def test_a_recording_that_is_unfit_is_refused(
    changes: dict[str, Any], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(**changes)
    words = ["run", "smoke", "--dry-run", "--set", f"demos.source={file}", "--set", "demos.count=1"]
    words += ["--set", "prompt.action_space=gui"] * ("is gui" in expected)
    assert expected.rsplit(":", maxsplit=1)[-1] in refused(capsys, *words)


@pytest.mark.parametrize("versions", [(1,), (OBSERVATION_VERSION,)])
def test_cloning_from_another_observation_is_warned_of_in_one_line(
    versions: tuple[int, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(observations=versions)
    wanted = (
        ""
        if versions != (1,)
        else (
            f"{Path(file).resolve()} was recorded with observation 1, desktops show observation {OBSERVATION_VERSION}"
            " now: what is cloned from it reads screens of another kind\n"
        )
    )
    words = ["run", "smoke", "--dry-run", "--set", f"demos.source={file}", "--set", "demos.count=1"]
    assert cli.main(words) == 0
    assert capsys.readouterr().err == wanted
    assert cli.main(["demos", "show", file]) == 0
    assert f"observation {versions[0]}," in capsys.readouterr().out


def test_an_export_makes_no_folders(capsys: pytest.CaptureFixture[str]) -> None:
    file = written()
    assert "FILE gone/a.parquet: there is no folder gone" in refused(capsys, "demos", "export", file, "gone/a.parquet")
    assert not Path("gone").exists()
    assert cli.main(["demos", "export", file, "a.parquet"]) == 0
    capsys.readouterr()
    assert "a.parquet exists already" in refused(capsys, "demos", "export", file, "a.parquet")
    assert cli.main(["demos", "export", file, "a.parquet", "--force"]) == 0


def test_decoding_takes_any_temperature_within_its_range_and_tells_it() -> None:
    assert [settings.temperature(said) for said in ("greedy", "t=1", "T=2", "t=99.5")] == [0.0, 1.0, 2.0, 99.5]
    for said in ("t=100", "t=-1", "t=1e-9", "t=nan", "x=1", "t"):
        with pytest.raises(ConfigError, match="a temperature from 1e-06 to below 100"):
            settings.temperature(said)


@pytest.mark.parametrize(
    ("named", "meant"),
    [
        ("vlc_save", "vlc_save/held-out/0"),
        ("calc_cell", "calc_cell/train/0"),
        ("calc_cell/held-out", "calc_cell/held-out/0"),
    ],
)
def test_a_family_means_its_first_task(named: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert TaskHandle(named).id == meant
    assert cli.main(["tasks", "show", named]) == 0
    assert capsys.readouterr().out.startswith(meant)


@pytest.mark.parametrize("named", ["file_manager:train:0", "file_manger/train/7", "file_manger", "vlc_sav/train/3"])
def test_the_task_that_a_hint_names_can_be_played(named: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"did you mean (\S+)\?", refused(capsys, "play", named))
    assert found is not None
    assert TaskHandle(found[1]).id == found[1]


def test_a_name_that_the_program_knows_means_what_it_means_everywhere() -> None:
    Path("text_editor").mkdir()
    assert cli.main(["tasks", "list", "text_editor"]) == 0


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
