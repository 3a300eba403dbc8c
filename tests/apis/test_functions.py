"""The declared functions of every application: as published, for the guest, the prompt, the grammar and calls.

`functions.yaml` has what is asked of each application.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import apis.guest
from actors.cluster.checks import functions as command
from actors.cluster.runs import doctor
from apis.actions.grammar import RefusedAnswer, parse
from apis.actions.gui import GUI, AnyAction, Tool, line
from apis.applications import BY_FOLDER
from apis.apps.check.case import tables
from apis.catalogue import TOOLS, call
from apis.functions.declaration import Function, Param
from apis.functions.values import COLOURS, MAX_CM, MAX_LINE, Unfit, fit
from apis.guest import addresses
from apis.guest.code.start import ids
from apis.observation import Observation
from apis.plans.action import SETTLE, Call, plan
from apis.prompts.published import render_published

FOLDER = {app.name: folder for folder, app in BY_FOLDER.items()}
OWNER = {app: functions[0].owner for app, functions in TOOLS.items()}
ASKED: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("functions.yaml").read_text())
NOTHING = Observation((), ())
TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "List": "array", "Dict": "object"}
PYTHON = {
    "integer": "int", "rgb": "int", "number": "float", "boolean": "bool", "scalars": "list[Any]",
    "letters": "list[str]", "names": "list[str]", "indices": "list[int]", "lines": "list[int]",
    "extent": "dict[str, float]", "spot": "str | dict[str, float]",
}  # fmt: skip


def asked(kind: str) -> list[tuple[str, str, Any]]:
    """Application, call with its class, and what becomes of it."""
    return [
        (app, f"{OWNER[app]}.{answer}", wanted)
        for app, rows in ASKED.items()
        for answer, wanted in rows.get(kind, {}).items()
    ]


def published(function: Function, *, rgb: str = "integer") -> str:
    """The function as the list of published ones has it."""
    parts = []
    for param in function.params:
        written = TYPES[param.published_type.removeprefix("Optional[").removesuffix("]")]
        written = rgb if param.kind == "rgb" else written
        parts.append(f"{param.name}: {written}" + ("" if param.required else f" = {param.default!r}"))
    return f"{function.name}({', '.join(parts)})"


@pytest.mark.parametrize("app", TOOLS)
def test_names_and_parameters_are_the_published_ones(app: str) -> None:
    rgb = "number" if app == "libreoffice_writer" else "integer"  # each is a whole number, which is a number
    assert [published(function, rgb=rgb) for function in TOOLS[app]] == ASKED[app]["published"].splitlines()


def test_every_application_has_a_class_name_of_its_own() -> None:
    owners = [{function.owner for function in functions} for functions in TOOLS.values()]
    assert all(len(names) == 1 for names in owners)
    assert len(set().union(*owners)) == len(owners)


def methods_of(app: str, owner: str) -> dict[str, list[tuple[str, str]]]:
    """Public methods of the classes (called `owner`, if given) in the guest's folder `app`, from their source.

    With names and types of their arguments. Every argument is a keyword, annotated and without a default: defaults
    stand in the declaration only.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for path in sorted((Path(str(apis.guest.__file__)).parent / app).glob("*.py")):
        classes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
        asked = [node for node in classes if not owner or node.name == owner]
        for method in (m for node in asked for m in node.body if isinstance(m, ast.FunctionDef)):
            if method.name.startswith("_"):
                continue
            assert method.name not in found
            assert [arg.arg for arg in method.args.args] == ["self"]
            assert not any(method.args.kw_defaults)
            given_as = [(a.arg, ast.unparse(a.annotation)) for a in method.args.kwonlyargs if a.annotation]
            assert len(given_as) == len(method.args.kwonlyargs)
            found[method.name] = given_as
    return found


@pytest.mark.parametrize("app", TOOLS)
def test_the_guest_carries_out_exactly_what_is_declared(app: str) -> None:
    wanted = {
        f.name: [(p.name, PYTHON.get(p.kind, "str") + (" | None" if p.default is None else "")) for p in f.params]
        for f in TOOLS[app]
    }
    assert methods_of(FOLDER[app], "" if app.startswith("libreoffice") else OWNER[app]) == wanted


def prompt(app: str) -> str:
    """The system's part of a prompt with that application in front."""
    return str(render_published("t", app, [], NOTHING, None)[0]["content"])


@pytest.mark.parametrize("app", TOOLS)
def test_the_prompt_shows_every_function_and_every_argument_of_the_application_in_front(app: str) -> None:
    text = prompt(app)
    for function in (*GUI, *TOOLS[app]):
        assert f"    def {function.signature.removeprefix(f'{function.owner}.')}:\n" in text
        assert function.description in text
        for param in function.params:
            assert param.meaning
            (line,) = {line for line in text.splitlines() if line.strip() == f"{param.name}: {param.told}"}
            assert param.kind != "choice" or all(str(value) in line for value in param.limits)
    assert not [other for other in (*TOOLS, "text_editor") if other != app and OWNER[app] in prompt(other)]


def refusal(answer: str, app: str) -> str:
    """Why the answer is none with that application in front."""
    refused = parse(answer, app)
    assert isinstance(refused, RefusedAnswer)
    return refused.reason


@pytest.mark.parametrize(("app", "answer", "arguments"), asked("spelled"))
def test_arguments_come_in_one_spelling_and_reach_the_guest(app: str, answer: str, arguments: dict[str, Any]) -> None:
    action = parse(answer, app)
    assert isinstance(action, Tool)
    assert action.arguments == arguments
    assert parse(line(action), app) == action
    sent = Call("tool", {"owner": OWNER[app], "name": action.name, "arguments": arguments})
    assert plan(action, NOTHING).calls == (sent, SETTLE)


@pytest.mark.parametrize(("app", "answer", "reason"), asked("refused"))
def test_says_which_argument_is_wrong_and_what_is_right(app: str, answer: str, reason: str) -> None:
    assert reason in refusal(answer, app)


def test_long_flat_lists_are_no_nesting() -> None:
    data = list(range(500))
    action = call("CalcTools", "set_column_values", column_name="A", data=data)
    assert parse(line(action), "libreoffice_calc") == action
    for value in (-12.75, True, False, None):
        action = call("CalcTools", "set_column_values", column_name="A", data=[value] * 500)
        assert parse(line(action), "libreoffice_calc") == action
    for deep in ("-" * 500 + "1", "1" + " -1" * 500, "not " * 500 + "True", "a" + ".a" * 500, "- " * 500 + "1"):
        assert isinstance(parse(f"CalcTools.set_column_values('A', [{deep}])", "libreoffice_calc"), RefusedAnswer)


def test_calls_by_oracles_are_checked_too() -> None:
    with pytest.raises(Unfit, match="cell: write one cell"):
        call("CalcTools", "set_cell_value", cell="3B", value="1")
    with pytest.raises(Unfit, match="colour"):
        call("CalcTools", "set_cell_value", cell="B3", value="1", colour=1)
    with pytest.raises(LookupError):
        call("CalcTools", "set_cell", cell="B3")
    shown = line(call("CalcTools", "set_cell_value", cell="B3", value="42"))
    assert shown == "CalcTools.set_cell_value(cell='B3', value='42')"


ROWS, COLUMNS = st.integers(1, addresses.ROWS), st.integers(0, addresses.COLUMNS - 1).map(addresses.letters)
CELLS = st.builds("{}{}".format, COLUMNS, ROWS)
NUMBERS = st.floats(-(2**53), 2**53, exclude_min=True, exclude_max=True) | st.integers(-(2**53) + 1, 2**53 - 1)


@st.composite
def ranges(draw: st.DrawFn) -> str:
    """Two corners of at most 64 columns and 30,000 rows, whichever of them is named first."""
    columns = [draw(st.integers(0, addresses.COLUMNS - 1))]
    rows = [draw(st.integers(0, addresses.ROWS - 1))]
    columns.append(draw(st.integers(columns[0], min(columns[0] + 63, addresses.COLUMNS - 1))))
    rows.append(draw(st.integers(rows[0], min(rows[0] + 29_999, addresses.ROWS - 1))))
    pairs = zip(columns, draw(st.permutations(rows)), strict=True)
    return ":".join(draw(st.permutations([addresses.address(row, column) for column, row in pairs])))


TYPED = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=40)
NAMES = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=20)
LENGTHS = st.floats(0.1, MAX_CM)
OF_KIND: dict[str, Callable[[Param], st.SearchStrategy[Any]]] = {
    "integer": lambda param: st.integers(*param.limits),
    "number": lambda param: st.floats(*param.limits),
    "boolean": lambda _: st.booleans(),
    "text": lambda _: TYPED,
    "choice": lambda param: st.sampled_from(param.limits),
    "colour": lambda _: st.sampled_from(sorted(COLOURS)) | st.integers(0, 0xFFFFFF).map("#{:06X}".format),
    "cell": lambda _: CELLS,
    "range": lambda _: CELLS | ranges(),
    "column": lambda _: COLUMNS,
    "columns": lambda _: COLUMNS | st.builds("{}:{}".format, COLUMNS, COLUMNS),
    "rows": lambda _: ROWS.map(str) | st.builds("{}:{}".format, ROWS, ROWS),
    "letters": lambda _: st.lists(COLUMNS, min_size=1, max_size=9, unique=True),
    "sheet": lambda _: NAMES,
    "scalars": lambda _: st.lists(TYPED | NUMBERS | st.none() | st.booleans(), min_size=1, max_size=9),
    "names": lambda _: st.lists(NAMES, min_size=1, max_size=4),
    "entry": lambda _: TYPED | NUMBERS,
    "rgb": lambda _: st.integers(0, 0xFFFFFF),
    "font": lambda _: NAMES,
    "path": lambda param: NAMES.map(lambda name: f"~/Documents/{name}{param.limits[0] if param.limits else ''}"),
    "folder": lambda _: NAMES.map("~/{}".format),
    "file_name": lambda _: NAMES,
    "lines": lambda _: st.lists(st.integers(1, MAX_LINE), min_size=1, max_size=9),
    "indices": lambda param: st.lists(st.integers(0, param.limits[0]), min_size=1, max_size=9),
    "spot": lambda param: st.sampled_from(param.limits) | st.fixed_dictionaries({"x": LENGTHS, "y": LENGTHS}),
    "extent": lambda _: st.fixed_dictionaries({"width": LENGTHS}, optional={"height": LENGTHS}),
    "media": lambda _: NAMES.map("~/Music/{}.mp3".format),
    "setting": lambda _: st.sampled_from(["loop", "--qt-max-volume"]),
    "own_line": lambda _: NAMES,
    "extension": lambda _: NAMES.map("bat.{}".format),
}


@st.composite
def calls(draw: st.DrawFn, functions: Iterable[Function]) -> Tool:
    """Calls of the functions, with any of the arguments that may be left out."""
    function = draw(st.sampled_from(tuple(functions)))
    values: dict[str, Any] = {}
    for param in function.params:
        if param.required or draw(st.booleans()):
            strategy = OF_KIND[param.kind](param)
            values[param.name] = draw(strategy if param.default is not None else strategy | st.none())
    return call(function.owner, function.name, **values)


@pytest.mark.parametrize("app", TOOLS)
@given(st.data())
def test_what_is_written_is_read_back(app: str, data: st.DataObject) -> None:
    action = data.draw(calls(TOOLS[app]))
    assert parse(line(action), app) == action
    assert msgspec.json.decode(msgspec.json.encode(action), type=AnyAction) == action


ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=110) | CELLS
ANYTHING |= st.sampled_from(["file://", "~/a", "https://x/y", "a-b", "--loop"])
PARAMS = sorted(
    {param for functions in TOOLS.values() for function in functions for param in function.params}, key=repr
)


@given(
    st.sampled_from(PARAMS),
    ANYTHING | st.lists(ANYTHING, max_size=4) | st.dictionaries(st.sampled_from(["x", "y", "left", "width"]), ANYTHING),
)
def test_a_value_is_fit_once_and_for_all_or_refused(param: Param, value: Any) -> None:
    try:
        once = fit(param, value)
    except Unfit:
        with pytest.raises(Unfit, match=f"^{param.name}: "):
            fit(param, value)
        return
    assert fit(param, once) == once
    assert param.kind != "own_line" or "\n" not in once


def test_the_check_names_extensions_that_there_are() -> None:
    named = {str(case.right["extension_id"]) for case in tables()["code"].cases if "extension_id" in case.right}
    assert named <= set(ids())


def test_the_check_calls_every_function_unavailable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "absent", lambda _: [])
    monkeypatch.setenv("COMPUTERRL_VSCODE", str(tmp_path))
    lacking = command.missing("code")
    assert lacking.startswith("VS Code is not set up: ")
    assert lacking.endswith("make vscode")
    absent = command.without("code", command.functions("code"), "unavailable", lacking)
    assert [each.verdict for each in absent] == ["unavailable"] * len(TOOLS["code"])
    assert command.complaints(absent) == []
