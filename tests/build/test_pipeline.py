"""A build by a model that errs: what is taken of its answers, what it is asked again, and that a kill loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from msgspec.structs import replace

from actors.cluster.build.command import profile
from actors.cluster.build.paired import Played, Weighed, weigh
from actors.cluster.build.pipeline import BuildLedger, Built, Pipeline
from actors.cluster.build.trials import Trial, Trials
from actors.desktop.config import EndpointConfig
from actors.desktop.endpoint import Endpoint
from actors.desktop.link import Looked
from apis import built
from apis.apps.check.case import table_of
from apis.build import answers, prompts
from apis.build.answers import AnswerRefusedError
from apis.built import KINDS, BuiltFunction, Cases
from runtime.errors import ConfigError
from runtime.program import check_origin
from tests.actors.desktop.endpoint_stand_in import Recorded, StandIn

PROFILE = profile("text_editor")
NUMBER = {"kind": "integer", "limits": [1, 9]}


def listed(*names: str, **more: Any) -> str:
    functions = [{"name": name, "does": "Do this to the text.", "params": {"number": NUMBER}} | more for name in names]
    return f"Here they are:\n```json\n{json.dumps({'functions': functions})}\n```\nDone."


def code(name: str, body: str = "app.set_text(str(number))") -> str:
    return f"```python\ndef {name}(number):\n    {body}\n```"


def cases(text: str = "5") -> str:
    right = [{"arguments": {"number": 5}, "effects": [{"read": "text", "equals": text}]}] * 2
    return f"```json\n{json.dumps({'right': right, 'wrong': [{'arguments': {'number': 0}, 'refusal': 'number'}]})}\n```"


def fenced_json(value: Any) -> str:
    return f"```json\n{json.dumps(value)}\n```"


class Stands:
    """In place of desktops: a source with `wrong` fails its cases, and cases of `nothing` can't fail."""

    def __init__(self) -> None:
        self.tried: list[str] = []

    async def trial(self, made: BuiltFunction) -> Trial:
        self.tried.append(made.name)
        assert made.code
        assert made.cases
        if "wrong" in made.code:
            return Trial("case 1: got 4, not 5", "either")
        if made.cases.right[0].effects[0].equals == "nothing":
            return Trial("case 1 passes although the function does nothing", "cases")
        return Trial(mutants=4, missed=["is one more"], p50_ms=3.0, p95_ms=4.0)


ERRING: dict[str, Any] = {
    "require 1": [429, listed("first_one", "second_one", "third_one", "fourth_one")],
    "implement first_one": code("first_one"),
    "cases first_one": cases(),
    "implement second_one": code("second_one", "wrong = 1"),  # its case fails
    "cases second_one": cases(),
    "repair second_one 1": code("second_one") + "\n" + cases(),  # both at once
    "repair second_one 2": code("second_one"),
    "implement third_one": "I would rather not.",
    "cases third_one": cases("nothing"),
    "repair third_one 1": {"cut": code("third_one")},
    "repair third_one 2": code("third_one"),
    "repair third_one 3": cases(),
    "implement fourth_one": code("fourth_one", "wrong = 1"),
    "cases fourth_one": cases(),
    "repair fourth_one 1": code("fourth_one", "wrong = 2"),
    "repair fourth_one 2": code("fourth_one", "wrong = 3"),
    "repair fourth_one 3": code("fourth_one", "wrong = 4"),
}


async def build(
    folder: Path, model: Recorded, tries: Stands, exemplars: list[str] | None = None, **more: Any
) -> list[Built]:
    if exemplars is None:
        exemplars = ["Do a thing"]
    ledger = BuildLedger(folder, "this build")
    async with StandIn(model.answer) as server:
        endpoint = Endpoint(EndpointConfig(url=server.url, model="m", first_backoff_s=0.0, longest_backoff_s=0.0), "")
        try:
            made = Pipeline(PROFILE, ledger, endpoint, tries.trial, lambda _: None, [], 9, **more)
            return await made.run(exemplars)
        finally:
            await endpoint.close()
            ledger.close()


async def test_a_model_that_errs_is_asked_again_and_what_fails_to_the_end_is_dropped(tmp_path: Path) -> None:
    done = await build(tmp_path, Recorded(ERRING), Stands())
    assert {each.name: (each.accepted, each.rounds) for each in done} == {
        "first_one": (True, 0), "second_one": (True, 2), "third_one": (True, 3), "fourth_one": (False, 3),
    }  # fmt: skip
    assert "got 4, not 5" in done[-1].why
    assert ["wrong" in each.made.code for each in done if each.made] == [False, False, False, True]


class KilledError(BaseException):
    """As by `kill -9`: nothing tidies up in the ledger."""


HELD_OUT = {f"family/held-out/{number}": f"Do thing {number}" for number in range(5)}
WEIGHED: dict[str, Any] = {"require 1": listed("less_turns", "breaks_it", "no_use", "no_plan")}
for each, plan in (("less_turns", range(1, 6)), ("breaks_it", range(1, 6)), ("no_use", ()), ("no_plan", (9,))):
    made = {"plans": {str(number): [{"number": 1}] for number in plan}}
    WEIGHED |= {f"implement {each}": code(each), f"cases {each}": cases(), f"trial {each}": fenced_json(made)}


async def test_a_function_earns_its_place_in_a_paired_trial_or_is_dropped_and_nothing_is_played_twice(
    tmp_path: Path,
) -> None:
    played: list[tuple[str, str]] = []

    async def plays(task: str, made: BuiltFunction | None, calls: Any) -> Played:
        played.append((task, made.name if made else ""))
        if len(played) == 7:
            raise KilledError
        assert calls == ([{"number": 1}] if made else [])
        return Played(made is None or made.name != "breaks_it", 5 if made is None else 3, 10)

    more: Any = {"plays": plays, "held_out": HELD_OUT}
    with pytest.raises(KilledError):
        await build(tmp_path, Recorded(WEIGHED), Stands(), **more)
    done = await build(tmp_path, model := Recorded(WEIGHED), Stands(), **more)
    assert len(played) == 16  # 5 without, twice 5 with, and the one that was cut
    assert not any(stage.startswith("implement") for stage in model.asked)
    assert [each.accepted for each in done] == [True, False, True, True]
    first, second, third, fourth = (each.weighed or Weighed() for each in done)
    assert (first.verdict, first.turns, first.turns_within, first.solved) == ("earns its place", -2, (-2, -2), (5, 5))
    assert (second.verdict, second.solved) == ("costs more", (5, 0))
    assert (third.why, fourth.why) == ("no held-out task has a use for it", "there is no task 9")


def test_a_difference_is_shown_only_where_its_interval_leaves_no_doubt() -> None:
    def verdict(*more: int, lost: int = 0) -> str:
        pairs = [(Played(True, 5), Played(number >= lost, 5 + each)) for number, each in enumerate(more)]
        return weigh(pairs).verdict

    assert verdict(-2, -2) == "no difference shown"  # two pairs have no interval
    assert verdict(-2, -3, -2) == "earns its place"
    assert verdict(-2, 3, -2) == "no difference shown"
    assert verdict(1, 1, 2, 1) == "costs more"
    assert verdict(-2, -2, -2, -2, lost=1) == "no difference shown"


async def test_a_build_killed_after_any_step_goes_on_and_asks_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = await build(tmp_path, once := Recorded(ERRING), Stands())
    steps = len(set(once.asked)) + 9
    keep = BuildLedger._keep
    for stop in range(1, steps):
        left = stop

        def kept(self: BuildLedger, *row: str) -> None:
            nonlocal left
            keep(self, *row)
            left -= 1
            if left == 0:
                self.close()
                raise KilledError

        folder = tmp_path / str(stop)
        folder.mkdir()
        monkeypatch.setattr(BuildLedger, "_keep", kept)
        model, tries = Recorded(ERRING), Stands()
        with pytest.raises(KilledError):
            await build(folder, model, tries)
        monkeypatch.setattr(BuildLedger, "_keep", keep)
        again = await build(folder, model, tries)
        assert again == whole
        assert sorted(model.asked) == sorted(once.asked)
        assert len(tries.tried) == 9


def test_a_model_is_told_of_every_kind_of_parameter() -> None:
    asked = prompts.require(PROFILE, ["Do it"], 1, [], 3)[-1]["content"]
    assert [kind for kind in KINDS if kind not in asked] == []


async def test_another_build_can_not_go_on_in_a_folder(tmp_path: Path) -> None:
    ledger = BuildLedger(tmp_path, "this build")
    with pytest.raises(ConfigError, match="another build go on"):
        BuildLedger(tmp_path, "this build")
    ledger.close()
    with pytest.raises(ConfigError, match="another build"):
        BuildLedger(tmp_path, "that build")


@contextlib.contextmanager
def full_after(size: int) -> Iterator[None]:
    """Files of this process take no more bytes than this, as on a disk that is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


async def test_a_full_disk_ends_a_build_in_one_line_and_it_goes_on_when_there_is_room(tmp_path: Path) -> None:
    tries = Stands()
    with full_after(5000), pytest.raises(ConfigError, match=r"build.jsonl can't be written: File too large$"):
        await build(tmp_path, Recorded(ERRING), tries)
    kept = (tmp_path / "build.jsonl").read_bytes()
    assert len(kept) == 5000
    assert not kept.endswith(b"\n")
    done = await build(tmp_path, model := Recorded(ERRING), again := Stands())
    assert [each.accepted for each in done] == [True, True, True, False]
    assert len(tries.tried) + len(again.tried) == 9
    assert "require 1" not in model.asked


def test_a_folder_that_can_not_be_written_keeps_what_it_had(tmp_path: Path) -> None:
    with full_after(10), pytest.raises(ConfigError, match=r"build.jsonl can't be written"):
        BuildLedger(tmp_path / "new", "this build")
    assert not list((tmp_path / "new").iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"build.jsonl can't be written: Not a directory"):
        BuildLedger(tmp_path / "file" / "new", "this build")
    with pytest.raises(ConfigError, match=r"api.json can't be written: Not a directory"):
        built.write(tmp_path / "file" / "new", PROFILE)
    built.write(tmp_path, PROFILE)
    digest = built.accept(tmp_path)
    before = sorted(tmp_path.iterdir())
    with full_after(10), pytest.raises(ConfigError, match=r"api.json can't be written: File too large"):
        built.write(tmp_path, replace(PROFILE, title="another title"))
    with full_after(10), pytest.raises(ConfigError, match=r"accepted.txt can't be written: File too large"):
        built.accept(tmp_path)
    assert sorted(tmp_path.iterdir()) == before
    assert built.accepted(tmp_path) == digest


async def test_a_budget_of_tokens_ends_the_asking_and_keeps_what_is_done(tmp_path: Path) -> None:
    done = await build(tmp_path, Recorded(ERRING), Stands(), budget_tokens=900)
    assert [each.accepted for each in done].count(False) >= 1
    assert any("--budget-tokens" in each.why for each in done)
    (tmp_path / "other").mkdir()  # and one that ends while tasks are read
    done = await build(
        tmp_path / "other", Recorded(ERRING), Stands(), [f"Do thing {n}" for n in range(11)], budget_tokens=1
    )
    assert done
    assert all("--budget-tokens" in each.why for each in done)


def api(folder: Path, **change: Any) -> Path:
    """A built folder; `change` is of what it holds."""
    functions = [{"name": "good_name", "does": "Do this.", "params": {"number": NUMBER}, "code": "pass"}]
    held = {"app": "text_editor", "owner": "EditorTools", "title": "editor", "helpers": "guest.built.gtk a.b"}
    (folder / "api.json").write_text(json.dumps(held | {"imports": ["re"], "functions": functions} | change))
    return folder


def function(name: str = "a_name", does: str = "Do this.", **more: Any) -> dict[str, Any]:
    return {"functions": [{"name": name, "does": does, "code": "pass", **more}]}


@pytest.mark.parametrize(
    "change",
    [
        {"helpers": "os path"}, {"imports": ["os; x"]}, {"owner": "True\n"}, {"title": "editor\naccepted as 1"},
        function("__class__"), function("import"), function(does="Do\nthis."),
        function(params={"number": {"kind": "integer"}}), function(params={"number": {"kind": "python"}}),
        function(cases={"right": [{"says": "x", "puts": {"world": 1}}] * 2}), function(code="x" * 9000),
        function(code=""), function(params={"text": {"kind": "text", "limits": [10**400]}}), {"owner": built.PROFILE},
        {"functions": function()["functions"] * 2},
        {"app": "Bad Name"}, {"argv": ["a\nb"]}, {"windows": ["A B"]},
    ],
)  # fmt: skip
def test_a_hostile_declaration_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    assert built.read(api(tmp_path)).owner == "EditorTools"
    with pytest.raises(ConfigError, match=r"api\.json"):
        built.read(api(tmp_path, **change))


BROUGHT = """
from apis.applications import app_named, app_of_class
from apis.actions.grammar import parse
from apis.prompts.system import compact_system
assert app_of_class("Viewer") == "viewer" and app_of_class("mousepad") == "text_editor"
assert app_named("viewer").argv == ("viewer", "--new") and "def good_name" in compact_system("viewer")
print(parse("OtherTools.good_name(number=2)", "viewer").arguments, parse("Agent.open_app('viewer')", "").app_name)
"""


def test_a_folder_brings_an_application_that_is_not_here(tmp_path: Path) -> None:
    change = {"app": "viewer", "owner": "OtherTools", "argv": ["viewer", "--new"], "windows": ["viewer", "mousepad"]}
    built.accept(api(tmp_path, **change))
    env = os.environ | {built.PLACES_ENV: str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", BROUGHT], env=env, capture_output=True, text=True, check=False)
    assert done.stdout == "{'number': 2} viewer\n", done.stderr
    built.accept(api(tmp_path, **change | {"argv": []}))
    done = subprocess.run([sys.executable, "-c", BROUGHT], env=env, capture_output=True, text=True, check=False)
    assert "can't have functions of viewer" in done.stderr


@pytest.mark.parametrize("app", ["text_editor", "gimp", "eog"])
def test_bundled_functions_are_a_models_answers_to_a_build_by_a_bundled_profile(app: str) -> None:
    folder = Path(check_origin().root, "deploy/apis", app)
    recorded = yaml.safe_load(Path(__file__).with_name(f"{app}.yaml").read_text())
    given = [each for each in recorded.values() if isinstance(each, str)]
    assert built.accepted(folder)
    api = built.read(folder)
    assert len(api.functions) >= 10
    assert msgspec.structs.replace(api, functions=[]) == profile(app)
    assert {each.code for each in api.functions} <= {answers.code(each) for each in given if "```python" in each}
    declared = [each for key in recorded if key.startswith("require") for each in interfaces(recorded[key])]
    shown = [json.loads(answers.block(each, "json")) for each in given if "```json" in each]
    cases = [msgspec.convert(each, Cases) for each in shown if "right" in each]
    for each in api.functions:
        assert msgspec.structs.replace(each, code="", cases=None) in declared
        assert each.cases in cases


def interfaces(answer: str) -> list[BuiltFunction]:
    return answers.interfaces(answer, [], [])[0]


def test_acceptance_writes_no_other_file_and_a_run_keeps_its_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    other = tmp_path / "other"
    other.write_text("mine")
    (api(folder) / built.ACCEPTED).symlink_to(other)
    first = built.accept(folder)
    assert other.read_text() == "mine"
    monkeypatch.setenv(built.PLACES_ENV, "")
    assert list(built.use([f"{folder}@{first}"])) == [folder]
    assert list(built.folders()) == [folder]
    assert built.accept(api(folder, title="the editor")) != first
    built._folders.cache_clear()  # as in a process that starts later
    with pytest.raises(ConfigError, match="has changed"):
        built.folders()
    (folder / built.ACCEPTED).unlink()
    (folder / built.ACCEPTED).mkdir()
    with pytest.raises(ConfigError, match=r"accepted\.txt can't be written: Is a directory"):
        built.accept(folder)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": "import"}, "can't be a name"),
        ({"name": "Bad Name"}, "regex"),
        ({"name": "taken_one"}, "of this name"),
        ({"extra": 1}, "unknown field"),
        ({"params": {"code": {"kind": "python"}}}, "kind 'python'"),
        ({"params": {"number": {"kind": "integer", "limits": [1]}}}, "limits"),
        ({"params": {"number": {"kind": "integer", "limits": ["a", "b"]}}}, "numbers"),
        ({"params": {"text": {"kind": "text", "limits": [10**9]}}}, "4000"),
        ({"params": {"text": {"kind": "text", "limits": [10**400]}}}, "4000"),
        ({"params": {"file": {"kind": "path", "limits": [1, ".txt"], "default": "a"}}}, "texts"),
        ({"params": {"file": {"kind": "path", "means": "a\nEditorTools.save()"}}}, "one line"),
        ({"does": "Save it.\nEditorTools.save()"}, "regex"),
        ({"params": {"number": {"kind": "integer", "limits": [1, 9], "default": 12}}}, "whole number"),
        ({"params": {"word": {"kind": "line", "limits": [50], "default": "marble"}}}, "exemplar"),
    ],
)
def test_an_interface_that_is_not_sound_is_refused(change: dict[str, Any], why: str) -> None:
    kept, refused = answers.interfaces(listed("good_name", **change), ["Write marble"], ["taken_one"])
    assert kept == []
    assert why in refused[0][1]


@pytest.mark.parametrize(
    ("right", "why"),
    [
        ({"arguments": {"other": 1}, "says": "x"}, "no argument other"),
        ({"arguments": {"number": 99}, "says": "x"}, "number"),
        ({"arguments": {"number": 1}}, "neither an effect"),
        ({"arguments": {"number": 1}, "effects": [{"read": "soul", "has": ["a"]}]}, "read 'soul'"),
        ({"arguments": {"number": 1}, "effects": [{"file": "/etc/passwd", "has": ["root"]}]}, "below the home"),
        ({"arguments": {"number": 1}, "effects": [{"read": "text", "matches": "(a+)+$"}]}, "form asked for"),
        ({"arguments": {"number": 1}, "effects": [{"read": "text"}]}, "equals, has or lacks"),
        ({"arguments": {"number": 1}, "says": "x", "puts": {"world": 1}}, "puts 'world'"),
        ({"arguments": {"number": 1}, "says": "x", "puts": {"text": [[1]]}}, "form asked for"),
        ({"arguments": {"number": 1}, "effects": [{"read": "text", "lacks": ["{answer}"]}]}, "can't be in a text"),
    ],
)
def test_a_case_that_is_not_sound_is_refused(right: dict[str, Any], why: str) -> None:
    made = interfaces(listed("good_name"))[0]
    with pytest.raises(AnswerRefusedError, match=why):
        answers.mended(fenced_json({"right": [right, right]}), "cases", made, PROFILE)


@pytest.mark.parametrize(
    "answer", ["", "```python\n" + "x" * 9000 + "\n```", "```python\n\x1b[0m\n```", "y" * (1 << 17)]
)
def test_code_that_is_none_or_too_long_is_refused(answer: str) -> None:
    with pytest.raises(AnswerRefusedError):
        answers.code(answer)


class PaperDesk:
    """In place of a real desk: a function says its own source, and an effect reads what `TEXTS` has for it."""

    home, windows = "/home/agent", 1

    def __init__(self, looked: Looked, texts: dict[str, str], left: int = 1, wait_s: float = 0.0) -> None:
        self.table, self._looked, self._texts, self._left, self._wait_s = TABLE, looked, texts, left, wait_s
        self._source = ""

    async def again(self) -> None: ...

    async def ended(self) -> bool:
        return False

    async def contents(self, path: str) -> bytes:
        return b""

    async def tool(self, name: str, /, **arguments: Any) -> str:
        if "nothing" in arguments:
            return "refused: no argument nothing"
        await asyncio.sleep(self._wait_s)
        self._source = self.table.offers[0]["source"]
        return self._source

    async def call(self, method: str, **arguments: Any) -> Any:
        answers = {"look_at_source": self._looked, "windows": [None] * self._left, "settle": True}
        return answers[method] if method in answers else self._texts.get(self._source, "")


TABLE = table_of(PROFILE, [])
ALL = {"right": "5", "empty": "", "one more": "6", "turned": "0"}
SEEN = Looked([], [("does nothing", "empty"), ("is one more", "one more"), ("is turned", "turned")])


@pytest.mark.parametrize(
    ("given", "about", "why"),
    [
        ({"looked": Looked(["uses eval"], [])}, "code", "uses eval"),
        ({"texts": ALL | {"right": "4"}}, "either", "case 1: 4, not '5'"),
        ({"texts": ALL | {"empty": "5"}}, "cases", "case 1, 2 passes although"),
        ({"texts": ALL | {"one more": "5", "turned": "5"}}, "cases", "no case notices that the function is one more"),
        ({"texts": ALL | {"turned": "5"}}, "", ""),
        ({"wait_s": 0.51}, "code", "500 is the most"),
        ({"left": 2}, "code", "a window open"),
        ({}, "", ""),
    ],
)
async def test_what_a_trial_says_is_mended_in_order(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], about: str, why: str
) -> None:
    monkeypatch.setattr("actors.cluster.build.trials.REPEATS", 1)
    monkeypatch.setattr("actors.cluster.build.trials.TIMINGS", 1)
    made = answers.mended(cases(), "cases", interfaces(listed("good_name"))[0], PROFILE)
    made = msgspec.structs.replace(made, code="right", cases=msgspec.structs.replace(made.cases, wrong=[]))
    desk: Any = PaperDesk(**{"looked": SEEN, "texts": ALL} | given)
    trial = await Trials(PROFILE, desk).trial(made)
    assert (bool(trial.problem), trial.about if trial.problem else "") == (bool(why), about)
    assert why in trial.problem
