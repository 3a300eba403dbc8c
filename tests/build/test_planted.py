"""Planted faults of published functions are found by cases: right bodies are accepted, and no faulty one is."""

from __future__ import annotations

import json
import shutil
import textwrap
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from actors.cluster.build.command import profile
from actors.cluster.build.trials import Trials
from actors.cluster.checks.desk import RealDesk, provider, sandbox_set
from apis.applications import app_named
from apis.apps.check.case import table_of
from apis.build import answers
from tests.build.blind import HIDDEN, checked

EDITOR = profile("text_editor")
SHEETS = "app.document().getSheets().getByName({!r}).getCellRangeByName('A1').getString()"
CALC = profile(str(Path(__file__).with_name("calc_profile.yaml")))
CALC = replace(
    CALC,
    reads={
        "far": "app.sheet().getCellRangeByName('AB2').getString()",
        "near": "app.sheet().getCellRangeByName('C5').getString()",
        "other": SHEETS.format("Other"),
        "last": SHEETS.format("Last"),
    },
)
MAIL = profile("thunderbird")
MAKE_FOLDER = """app.script('''
const { MailServices } = ChromeUtils.importESModule("resource:///modules/MailServices.sys.mjs");
const server = MailServices.accounts.localFoldersServer;
server.rootFolder.createSubfolder(arguments[0], null);''', name)
return "it is there"
"""
LINE = {"kind": "line", "limits": [50]}


def case(read: str, equals: str, puts: Any = None, **arguments: Any) -> dict[str, Any]:
    return {"arguments": arguments, "puts": puts or {}, "effects": [{"read": read, "equals": equals}]}


# Profile, function, parameters, right calls, the right body, and what in it becomes what in each faulty one.
PLANTED: dict[str, tuple[Any, ...]] = {
    "insert_text": (
        EDITOR,
        {"text": LINE},
        [
            case("text", "abXcd", {"text": "abcd", "caret": 2}, text="X"),
            case("text", "abcd\nend", {"text": "abcd\n", "caret": 5}, text="end"),
        ],
        "whole, at = app.text(), app.caret()\napp.set_text(whole[:at] + text + whole[at:])\nreturn 'it is in'",
        {
            "caret_at_the_start": ("app.caret()", "0"),
            "off_by_one": ("[at:]", "[at + 1:]"),
            "silent": ("app.set_text", ""),
        },
    ),
    "replace_word": (
        EDITOR,
        {"old": LINE, "new": LINE},
        [
            case("text", "red rose", {"text": "red tulip"}, old="tulip", new="rose"),
            case("text", "a a", {"text": "b b"}, old="b", new="a"),
        ],
        "app.set_text(app.text().replace(old, new))\nreturn 'replaced'",
        {"arguments_turned": ("(old, new)", "(new, old)"), "once": ("(old, new)", "(old, new, 1)")},
    ),
    "write_cell": (
        CALC,
        {"column": {"kind": "column"}, "row": {"kind": "integer", "limits": [1, 99]}, "value": LINE},
        [case("far", "x", column="AB", row=2, value="x"), case("near", "y", column="C", row=5, value="y")],
        "number = 0\nfor letter in column:\n    number = number * 26 + ord(letter) - 64\n"
        "app.sheet().getCellByPosition(number - 1, row - 1).setString(value)\nreturn f'{column}{row} is {value}'",
        {
            "column_after_z": ("number * 26 + ", ""),
            "off_by_one": ("row - 1", "row"),
            "silent": (".setString(value)", ""),
        },
    ),
    "name_sheet_cell": (
        CALC,
        {"sheet_name": {"kind": "sheet"}, "value": LINE},
        [case("other", "x", sheet_name="Other", value="x"), case("last", "y", sheet_name="Last", value="y")],
        "app.document().getSheets().getByName(sheet_name).getCellRangeByName('A1').setString(value)\nreturn 'written'",
        {"wrong_sheet": ("app.document().getSheets().getByName(sheet_name)", "app.sheet()")},
    ),
    "make_folder": (
        MAIL,
        {"name": LINE},
        [case("folders", "Trash, Unsent Messages, Work", {"folder": ""}, name="Work"),
         case("folders", "Trash, Unsent Messages, Work, Play", {"folder": "Work"}, name="Play")],
        MAKE_FOLDER,
        {"within_another": ("rootFolder", "rootFolder.descendants[0]"), "silent": (".createSubfolder", ";(() => 0)")},
    ),
}  # fmt: skip


@pytest.mark.desktop
@pytest.mark.proof
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PLANTED)
async def test_the_right_body_is_accepted_and_each_faulty_one_is_not(state_dir: str, name: str) -> None:
    about, params, right, body, faults = PLANTED[name]
    if not shutil.which(app_named(about.app).argv[0]):
        pytest.skip("set-up installs it with COMPUTERRL_OSWORLD=1 alone")
    listed = {"functions": [{"name": name, "does": "Do what it says.", "params": params}]}
    (interface,), refused = answers.interfaces(f"```json\n{json.dumps(listed)}\n```", [], [])
    assert not refused
    made = answers.mended(f"```json\n{json.dumps({'right': right})}\n```", "cases", interface, about)
    bodies = {"right": body} | {fault: body.replace(*change) for fault, change in faults.items()}
    found = {}
    async with provider(
        sandbox_set([f"desktops.provider.state_dir={state_dir}", "desktops.provider.memory_mib=900"])
    ) as desktops:
        desk = RealDesk(table_of(about, []), desktops)
        try:
            for fault, text in bodies.items():
                assert fault == "right" or text != body
                source = f"def {name}({', '.join(params)}):\n{textwrap.indent(text, '    ')}\n"
                found[fault] = (await Trials(about, desk).trial(replace(made, code=source))).problem
        finally:
            await desk.close()
    assert [fault for fault, problem in found.items() if not problem] == ["right"], found


@pytest.mark.desktop
@pytest.mark.proof
@pytest.mark.timeout(600)
async def test_what_was_written_blind_passes_the_original_cases(state_dir: str) -> None:
    problems = await checked(None, [f"desktops.provider.state_dir={state_dir}"])
    assert set(problems) == set(HIDDEN)
    wrong = {name: problem for name, problem in problems.items() if problem}
    assert len(wrong) <= 2, wrong
