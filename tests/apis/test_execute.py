"""What actions ask of the guest agent."""

import msgspec
import pytest

from apis.actions.gui import (
    GUI,
    MAX_TEXT,
    Action,
    Click,
    DragAndDrop,
    Exit,
    Hotkey,
    OpenApp,
    Quote,
    Scroll,
    SwitchWindow,
    Type,
    Wait,
)
from apis.observation import Element, Observation, Window
from apis.plans.action import OPEN_MS, SETTLE, SIGNS_A_CALL, Call, plan

SCREEN = Observation(
    windows=(Window(42, "Mousepad", "a.txt - Mousepad", True),),
    elements=(Element("text", "", "hello", 0, 40, 200, 100, ("sen", "edt"), 0),),
)


def calls(action: Action) -> list[tuple[str, dict]]:
    return [(call.method, call.args) for call in plan(action, SCREEN).calls if call.method != "settle"]


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (Click(coordinates="e1"), [("click", {"x": 100, "y": 90, "button": 1, "n": 1})]),
        (
            Click(coordinates=(3, 4), num_clicks=2, button_type="right"),
            [("click", {"x": 3, "y": 4, "button": 3, "n": 2})],
        ),
        (
            Type(coordinates="e1", text="$(reboot) 'x'", overwrite=True, enter=True),
            [
                ("click", {"x": 100, "y": 90}),
                ("hotkey", {"keys": ["ctrl", "a"]}),
                ("hotkey", {"keys": ["backspace"]}),
                ("type_text", {"text": "$(reboot) 'x'"}),
                ("hotkey", {"keys": ["enter"]}),
            ],
        ),
        (Type(), []),
        (
            DragAndDrop(drag_from_coordinates=(1, 2), drop_on_coordinates="e1"),
            [("drag", {"x": 1, "y": 2, "x2": 100, "y2": 90})],
        ),
        (Scroll(coordinates=(1, 2), direction="up"), [("scroll", {"x": 1, "y": 2, "dy": -5})]),
        (Scroll(coordinates=(1, 2), direction="down"), [("scroll", {"x": 1, "y": 2, "dy": 5})]),
        (OpenApp(app_name="gedit"), [("open_window", {"argv": ["mousepad"], "timeout_ms": OPEN_MS})]),
        (SwitchWindow(window_id="w1"), [("activate", {"number": 42, "maximize": True})]),
        (Hotkey(keys=("ctrl", "shift", "n")), [("hotkey", {"keys": ["ctrl", "shift", "n"]})]),
        (Quote(content="42"), []),
        (Wait(), []),
        (Exit(success=True), []),
    ],
)
def test_the_calls_of_each_action(action: Action, expected: list[tuple[str, dict]]) -> None:
    assert calls(action) == expected


def test_a_long_text_has_the_more_calls_the_longer_it_is_and_the_last_one_answers() -> None:
    for signs, further in ((1, 0), (SIGNS_A_CALL, 0), (SIGNS_A_CALL + 1, 1), (MAX_TEXT, 4)):
        planned = plan(Type(text="x" * signs, enter=True), SCREEN)
        text, *others = [call.method for call in planned.calls if call.method.startswith("type_")]
        assert (text, others) == ("type_text", ["type_on"] * further)
        assert planned.calls[0].args.get("calls", 1) == 1 + further
        assert planned.answer == further


def test_every_declared_function_has_a_plan() -> None:
    assert {function.action for function in GUI} <= set(plan.registry)


def test_results_and_endings() -> None:
    assert plan(Quote(content="keep this"), SCREEN).result == "keep this"
    assert plan(OpenApp(app_name="settings"), SCREEN).result == "settings is not supported or recognized"


def test_an_application_of_one_window_is_brought_to_the_front() -> None:
    """A second `code` without a file shows nothing, and whoever waited for a window of it would wait in vain."""
    there = Observation(windows=(*SCREEN.windows, Window(43, "Code", "a.py", False)), elements=())
    started, raised = (plan(OpenApp(app_name="vs code"), screen).calls[0] for screen in (SCREEN, there))
    assert (started.method, started.args["argv"]) == ("open_window", ["code"])
    assert raised == Call("activate", {"number": 43, "maximize": True})
    again = plan(OpenApp(app_name="gedit"), there).calls[0]
    assert again.method == "open_window", "others show a new window"
    assert plan(Exit(success=False), SCREEN).ends is False
    assert plan(Wait(), SCREEN).ends is None
    assert plan(Click(coordinates=(1, 1)), SCREEN).calls[-1] == SETTLE == Call("settle", SETTLE.args)


def test_overwriting_a_cell_leaves_the_rest_of_the_sheet() -> None:
    cell = Element("table-cell", "B3", "9", 100, 200, 80, 17, ("sen", "edt"), 0)
    box = Element("text", "Name Box", "A1", 4, 124, 126, 34, ("sen", "edt"), 0)
    sheet = Observation(windows=(Window(7, "libreoffice-calc", "a.xlsx", True),), elements=(box, cell))
    for where in ("e2", (110, 205)):
        methods = [call.method for call in plan(Type(coordinates=where, text="5", overwrite=True), sheet).calls]
        assert "hotkey" not in methods
    methods = [call.method for call in plan(Type(coordinates="e1", text="B7", overwrite=True), sheet).calls]
    assert methods.count("hotkey") == 2


def test_overwriting_a_cell_with_nothing_clears_it() -> None:
    cell = Element("table-cell", "B3", "9", 100, 200, 80, 17, ("sen", "edt", "foc"), 0)
    line = Element("text", "Input line", "9", 200, 124, 400, 34, ("sen", "edt"), 0)
    windows = (Window(7, "libreoffice-calc", "a.xlsx", True),)

    def keys(action: Type, *elements: Element) -> list[object]:
        sheet = Observation(windows=windows, elements=elements)
        return [call.args["keys"] for call in plan(action, sheet).calls if call.method == "hotkey"]

    for where in ("e2", None):
        assert keys(Type(coordinates=where, text="", overwrite=True), line, cell) == [["delete"]]
    assert keys(Type(text="5", overwrite=True), line, cell) == []
    edited = msgspec.structs.replace(line, states=("sen", "edt", "foc"))
    assert keys(Type(text="5", overwrite=True), edited, cell) == [["ctrl", "a"], ["backspace"]]


def test_in_an_office_the_selection_is_there_before_anything_is_deleted() -> None:
    show = Observation(windows=(Window(7, "libreoffice-impress", "a.odp", True),), elements=())
    methods = [call.method for call in plan(Type(text="new", overwrite=True), show).calls]
    assert methods == ["hotkey", "settle", "hotkey", "type_text", "settle"]


@pytest.mark.parametrize(("items", "shut"), [((), 0), (("Application Menu",), 0), (("Application Menu", "Copy"), 1)])
def test_a_window_is_left_with_escape_only_where_a_menu_is_open(items: tuple[str, ...], shut: int) -> None:
    shown = tuple(Element("menu-item", name, "", 0, 0, 9, 9, ("sen",), 0) for name in items)
    code = Observation(windows=(Window(3, "code", "a - VS Code", True), *SCREEN.windows), elements=shown)
    methods = [call.method for call in plan(SwitchWindow(window_id="w2"), code).calls if call.method != "settle"]
    assert methods == ["hotkey"] * shut + ["activate"]
