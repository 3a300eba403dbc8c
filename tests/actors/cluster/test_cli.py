from __future__ import annotations

import inspect
import io
import json
import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.cluster import cli
from actors.cluster.commands import COMMANDS
from actors.cluster.config import models
from actors.cluster.evaluate import settings
from actors.front.library import TaskHandle
from actors.replay.demos import demo_files
from actors.replay.demos import format as demo_format
from actors.replay.demos.format import Demo, DemoStep, RecordingHeader, digest_of_step
from actors.replay.messages import StepPayload
from apis.observation import OBSERVATION_VERSION
from apis.tasks import registry as tasks
from runtime.errors import ConfigError
from runtime.program import check_origin, program

SEEN = ("--set", "prompt.observation=both", "--set")


def call(*args: str, cwd: Path | None = None, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "actors.cluster.cli", *args]
    return subprocess.run(command, capture_output=True, text=True, input=text, cwd=cwd, check=False, timeout=60)


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


def test_help_of_a_verb_shows_its_own_examples(capsys: pytest.CaptureFixture[str]) -> None:
    cli.build_parser.cache_clear()  # a test before may have made it in another folder
    with pytest.raises(SystemExit):
        cli.main(["demos", "show", "--help"])
    examples = capsys.readouterr().out.partition("examples:\n")[2].splitlines()
    assert examples == [f"  {program()} demos show cold --task text_editor/train/3"]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["rnu"], "did you mean run?"),
        (["runs", "--jsno"], "did you mean --json?"),
        (["runs", "more"], "more: unexpected"),
        (["run"], "FILE"),
        (["run", "lokal", "--dry-run"], "did you mean local?"),
        (["run", "local", "--dry-run", "--set", "run.sed=1"], "did you mean run.seed?"),
        (["run", "local", "--dry-run", "--set", "nothing"], "expected path=value"),
        (["run", "local", "--json"], "--json goes with --dry-run"),
        (["run", "local", "--resume"], "nothing to resume"),
        (["logs", "nope"], "no run nope"),
        (["parse", "--app", "libreoffice_cal"], "did you mean libreoffice_calc?"),
        (["tasks", "check", "dektop"], "did you mean desktop?"),
        (["tasks", "check", "desktop", "--family", "text_edtor"], "did you mean text_editor?"),
        (["tasks", "check", "text_editor", "--route", "gpi"], "did you mean gui?"),
        (["tasks", "check", "."], "no task files"),
        (["tasks", "show", "text_editr/train/1"], "did you mean text_editor/train/1?"),
        (["tasks", "show", "text_editor/trian/3"], "there is no split trian; did you mean train?"),
        (["tasks", "show", "text_editor/train/1000000"], "its number is one from 0 to 999999"),
        (["eval", "base", "--tasks", "text_editor", "--instances", "100001"], "0 to 100000 is not within"),
        (["demos", "record", "text_editor", "--count", "99999999999"], "text_editor has 1000000 tasks"),
        (["demos", "record"], "name a SUITE"),
        (["demos", "record", "editor_copy"], "no family that may be trained on"),
        (["demos", "record", "--tasks", "text_editor/held-out/3"], "is held out"),
        (
            ["demos", "record", "text_editor", "--set", "demos.count=3"],
            "without a deploy file it sets keys of",
        ),
        (
            ["demos", "record", "--deploy", "local", "--count", "3"],
            "--count: with --deploy the file says it: change it with --set demos.count=VALUE",
        ),
        (["demos", "record", "--deploy", "local", "--seed", "0"], "--set run.seed=VALUE"),
        (["demos", "record", "text_editor", "--resume", "--desktops", "3"], "--desktops: --resume goes on as"),
        (["demos", "record", "text_editor", "--tasks", "text_editor/train/1"], "leave SUITE out"),
        (["runs", "--seats", "3"], "--seats: no such argument; "),
        (["demos", "show", "nope"], "no recording of that name"),
        (["demos", "show", "nope.parquet"], "no such file"),
        (["eval", "bse", "--tasks", "desktop"], "did you mean base?"),
        (["eval", "base"], "nothing to play: name a suite"),
        (["eval", "base", "--at", "final"], "--at final: base is a model"),
        (["eval", "base", "--tasks", "desktop", "--instances", "0"], "--instances is 0"),
        (["eval", "base", "--tasks", "desktop", "--decoding", "hot"], "--decoding hot: greedy, or t=T for"),
        (["eval", "base", "--tasks", "desktop", "--episodes", "4"], "greedy episodes repeat"),
        (["eval", "base", "--tasks", "editor_copy", "--split", "train"], "no such instances"),
        (["eval", "base", "--like", "local", "--instances", "3"], "add --tasks SUITE"),
        (["export", "nope", "out"], "no such run"),
        (["export", "base", "/proc/x"], "DIR /proc: nothing can be written there"),
        (["eval", "base", "--tasks", "desktop", "--osworld-out", "/proc/x"], "/proc/x: nothing can be written there"),
        (["web", "--port", "70000"], "--port 70000: it is between 0 and 65535"),
        (["web", "--host", "203.0.113.9"], "--host 203.0.113.9 --port 8600: can't be served"),
        (["run", "smoke", "--runs", "a/" + "b" * 300], "File name too long"),
        (["run", "smoke", "--name", "x" * 300], "300 bytes long"),
        (["run", "smoke", "--name", "last"], "last stands for the newest run"),
        (["run", "smoke", "--name=-x"], "no dot or dash at the beginning"),
        (["runs", "--runs", "nope"], "--runs nope: there is no such folder"),
        (["tasks", "check", "desktop", "--static", "--route", "gui"], "--route goes with plays on desktops"),
        (["runs", "--runs", "/dev/null"], "--runs /dev/null: no folder of runs"),
        (["demos", "record", "text_editor", "--model", "nope"], "--model nope: no such run in runs and no such model"),
        (["model", "check", "nope"], "nope: no such run in runs and no such model folder; known: base, cloned"),
        (["play", "desktop"], "desktop is a suite, whose families are in"),
        (["play", "file_manager/3"], "there is no task file_manager/3: did you mean file_manager/train/3?"),
        (["play", "file_manager", "--model", "127.0.0.1:9"], "begins with its scheme, as in http://127.0.0.1:9"),
        (["apis", "build", "--app", "text_editor", "--tasks", "text_editor", "--model", "base"], "give its URL"),
        (["demos", "show", "x" * 300], "no recording of that name"),
        (["export", "base", "."], "exists already"),
        (["run", "smoke", "--dry-run", "--set", "demos.source=x.parquet"], "demos.source: x.parquet: no such file"),
        (
            ["run", "smoke", "--dry-run", "--set", "prompt.observation=picture"],
            "prompt.observation is picture, and the",
        ),
        (["run", "smoke", "--dry-run", *SEEN, "demos.source=x"], "demos.source is x and prompt.observation is both"),
        (["run", "smoke", "--dry-run", *SEEN, "desktops.memo=on"], "desktops.memo is on and prompt.format is compact"),
        (["run", "smoke", "--dry-run", "--set", "desktops.screen=224x224"], "whose application needs 800x600 pixels"),
    ],
)
def test_bad_input_is_one_line_with_the_nearest_right_one(
    args: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        status = cli.main(args)
    except SystemExit as ended:
        status = int(ended.code or 0)
    shown = capsys.readouterr().err
    assert status == 2
    assert shown.count("\n") == 1
    assert expected in shown


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


@pytest.mark.slow
def test_parse_reads_an_answer_and_exits_with_the_verdict() -> None:
    good = call("parse", "--app", "text_editor", "--json", text="type it\nAgent.type(text='kiwi')\n")
    assert good.returncode == 0
    assert json.loads(good.stdout)["verdict"] == "action"
    bad = call("parse", "--app", "vlc", "--json", text="__import__('os').system('true')")
    assert bad.returncode == 2
    assert json.loads(bad.stdout)["action"] is None
    plain = call("parse", "--app", "code", text="\x1b[2J")
    assert plain.returncode == 2
    assert plain.stdout.startswith("refused: ")
    assert "\x1b" not in plain.stdout


@pytest.mark.slow
def test_dry_run_from_another_folder_starts_nothing(tmp_path: Path) -> None:
    done = call("run", "--dry-run", "deploy/local.yaml", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert any(row[0].startswith("desktop") for row in plan["hosts"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_doctor_says_what_it_looked_at(tmp_path: Path) -> None:
    done = call("doctor", "--json", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert done.returncode == (0 if report["ok"] else 1)
    assert {"python", "packages", "torch", "debian", "sandbox", "base model", "disk"} <= {
        c["name"] for c in report["checks"]
    }
    assert all(check["mend"] for check in report["checks"] if not check["ok"])


@pytest.mark.slow
def test_a_reader_that_leaves_ends_no_run(tmp_path: Path) -> None:
    work = """
import sys, time
from actors.cluster import output
from actors.cluster.runs import execute
from pathlib import Path
for n in range(30):
    execute.RunDisplay().note("going on")
    time.sleep(0.01)
output.line("done")
Path("done").touch()
"""
    script = f"{sys.executable} -P -c '{work}' | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "going on\n", "")
    assert (tmp_path / "done").exists()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cli.build_parser.cache_clear()  # it names the program as the folder before saw it


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line that the command ends with."""
    assert cli.main(words) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    return shown


def step() -> DemoStep:
    plain = {
        "prompt_ids": [1, 2], "response_ids": [3], "logprobs": [], "spans": [], "temperature": 1.0, "observation": "o",
        "response": "Agent.wait()", "action": None, "refusal": None, "result": None, "screenshot": None,
        "observe_ms": 1.0, "generate_ms": 0.0, "act_ms": 1.0,
    }  # fmt: skip
    payload = msgspec.convert(plain, StepPayload)
    return DemoStep(digest=digest_of_step(payload), well_formed=True, payload=payload)


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
    ],
)
def test_a_recording_that_is_unfit_is_refused(
    changes: dict[str, Any], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(**changes)
    words = ["run", "smoke", "--dry-run", "--set", f"demos.source={file}", "--set", "demos.count=1"]
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


@pytest.mark.parametrize(
    "words",
    [
        ("report", "x", "--out", ""),
        ("run", "smoke", "--name", ""),
        ("export", "base", "m", "--at", ""),
        ("demos", "record", "text_editor", "--name", ""),
        ("run", "smoke", "--set", ""),
        ("demos", "record", "--tasks", ""),
    ],
)
def test_an_empty_word_is_no_value(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert f"{words[-2]} is empty: give it a value" in refused(capsys, *words)
    assert list(Path().iterdir()) == []


def test_an_export_makes_no_folders(capsys: pytest.CaptureFixture[str]) -> None:
    file = written()
    assert "FILE gone/a.parquet: there is no folder gone" in refused(capsys, "demos", "export", file, "gone/a.parquet")
    assert not Path("gone").exists()
    assert cli.main(["demos", "export", file, "a.parquet"]) == 0
    capsys.readouterr()
    assert "a.parquet exists already" in refused(capsys, "demos", "export", file, "a.parquet")
    assert cli.main(["demos", "export", file, "a.parquet", "--force"]) == 0


@pytest.mark.parametrize(("decoding", "heat"), [("greedy", 0.0), ("t=1", 1.0), ("T=2", 2.0), ("t=99.5", 99.5)])
def test_decoding_takes_any_temperature_within_its_range(decoding: str, heat: float) -> None:
    assert settings.temperature(decoding) == heat


@pytest.mark.parametrize("decoding", ["t=100", "t=-1", "t=1e-9", "t=nan", "t=inf", "x=1", "t", "1"])
def test_decoding_beyond_its_range_is_told_the_range(decoding: str) -> None:
    with pytest.raises(ConfigError, match="a temperature from 1e-06 to below 100"):
        settings.temperature(decoding)


@pytest.mark.parametrize("number", ["03", "٣", "-1", "x", "1_0", " 3", "+3", "3/4", "00"])
def test_an_instance_has_one_way_to_be_written(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "tasks", "show", f"text_editor/train/{number}")
    assert "its number is one from 0 to 999999" in said
    with pytest.raises(ConfigError, match="plain digits"):
        tasks.family(f"text_editor/train/{number}")


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


def test_task_files_are_named_by_their_path(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine").mkdir()
    Path("mine/good.json").write_text("{}")
    for verb in ("list", "show", "check"):
        said = refused(capsys, "tasks", verb, "mine/god.json")
        assert "mine/god.json: no such task file; did you mean mine/good.json?" in said
    assert "tasks check mine --static lists them" in refused(capsys, "tasks", "list", "mine")
    Path("text_editor").mkdir()  # a name that the program knows means what it means everywhere
    assert cli.main(["tasks", "list", "text_editor"]) == 0
    assert "tasks by themselves belong to no family" in refused(capsys, "demos", "record", "mine")


def test_a_report_of_what_is_no_run_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    Path("notes.md").write_text("x")
    Path("local-0.figures.gz").write_bytes(b"")
    Path("empty").mkdir()
    assert "exists, but a file of a run's figures ends in .figures.gz" in refused(capsys, "report", "notes.md")
    assert "did you mean local-0.figures.gz?" in refused(capsys, "report", "local-0.figure.gz")
    assert "is no run and holds no file of a run's figures" in refused(capsys, "report", "empty")
    assert f"no runs in runs yet: make one with  {program()} run smoke" in refused(capsys, "report")
    assert "no run x: there are no runs in runs yet" in refused(capsys, "report", "x")


@pytest.mark.parametrize("app", ["chromium", "chrome", "calc", "vs_code", "mousepad", "terminal"])
def test_parse_takes_other_names_of_applications(
    app: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"Agent.wait()")))
    assert cli.main(["parse", "--app", app]) == 0
    assert "chromium" not in capsys.readouterr().out


def test_a_key_of_a_megabyte_is_named_in_a_short_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("long.yaml").write_text(f"? {'k' * 900_000}\n: 1\n")
    assert len(refused(capsys, "run", "long.yaml", "--dry-run")) <= cli.LONGEST + 10


@pytest.mark.parametrize(
    "words",
    [
        ("run", "smoke", "--dry-run", "--set", "model.path=loop"),
        ("run", "smoke", "--dry-run", "--set", "desktops.provider.state_dir=loop"),
        ("run", "loop", "--dry-run"),
        ("tasks", "fetch", "loop.json"),
        ("eval", "base", "--tasks", "loop.json"),
        ("status", "loop"),
    ],
)
def test_a_circle_of_links_is_refused_in_one_line(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("loop", "loop.json", "loop.parquet"):
        Path(name).symlink_to(name)
    assert cli.main(words) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
