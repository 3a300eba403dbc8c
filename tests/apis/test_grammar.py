"""The parser: what it takes, what it refuses, and that nothing else can come out."""

import string
import time
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.cluster.commands.play import verdict
from apis.actions.arguments import KEYS
from apis.actions.grammar import ALIASES, MAX_ANSWER, RefusedAnswer, parse
from apis.actions.gui import (
    GUI,
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
    line,
)
from apis.applications import APP_NAMES
from apis.catalogue import TOOLS

ELEMENTS = {"e1": None, "e2": None}
WINDOWS = {"w1": 7, "0x00000007": 7}


def parsed(answer: str, form: str = "compact") -> Action | RefusedAnswer:
    return parse(answer, "text_editor", ELEMENTS, WINDOWS, form)


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        ("Agent.click([640, 360])", Click(coordinates=(640, 360))),
        ("Agent.click(coordinates=(0, 719), num_clicks=2)", Click(coordinates=(0, 719), num_clicks=2)),
        ("Agent.click(e2, 1, 'right')", Click(coordinates="e2", button_type="right")),
        ("Agent.click('e2')", Click(coordinates="e2")),
        ("Agent.type(text='a\\tb\\n')", Type(text="a\tb\n")),
        ("Agent.type(None, 'x', True, True)", Type(text="x", overwrite=True, enter=True)),
        ("Agent.type(e1, text='it\\'s \"so\"')", Type(coordinates="e1", text='it\'s "so"')),
        (r"Agent.type(text='C:\dir')", Type(text="C:\\dir")),
        ("Agent.type(text='a(((((((((((((b')", Type(text="a(((((((((((((b")),
        ("Agent.type(text='''one\\n'two''')", Type(text="one\n'two")),
        ("Agent.drag_and_drop([1, 2], e1)", DragAndDrop(drag_from_coordinates=(1, 2), drop_on_coordinates="e1")),
        ("Agent.scroll([1, 2], 'up')", Scroll(coordinates=(1, 2), direction="up")),
        ("Agent.open_app(app_name='vlc')", OpenApp(app_name="vlc")),
        ("Agent.switch_window(w1)", SwitchWindow(window_id="w1")),
        ("Agent.switch_window('0x00000007')", SwitchWindow(window_id="0x00000007")),
        ("Agent.hotkey(['Ctrl', 's'])", Hotkey(keys=("ctrl", "s"))),
        ("Agent.quote('42 files')", Quote(content="42 files")),
        ("Agent.wait()", Wait()),
        ("Agent.exit(success=False)", Exit(success=False)),
        ("WAIT", Wait()),
        ("I am done\nDONE", Exit(success=True)),
        ("FAIL", Exit(success=False)),
        ("icon plum.txt -> click\nAgent.click(e1)\n\n", Click(coordinates="e1")),
        ("<think>so</think>\n```python\nAgent.wait()\n```\n```python\nAgent.exit(True)\n```", Wait()),
        ("```Agent.wait()```", Wait()),
        ("so: ```python\nAgent.wait()``` done", Wait()),
        ("```python Agent.wait()```", Wait()),
        ("```Python Agent.wait()```", Wait()),
        ("so: ```Agent.wait()```", Wait()),
        ("so: ```Agent.wait()``` done", Wait()),
        ("Action: ```python Agent.wait()```", Wait()),
        ("```DONE\n```", Exit(success=True)),
        ("```py\r\n  Agent.wait()\r\n  ```", Wait()),
        ("```\nDONE\n```", Exit(success=True)),
        ("add it\nAgent.type(text='```')", Type(text="```")),
        ("```python\nAgent.type(text='``` ```')\n```", Type(text="``` ```")),
        ("Agent.type(text='one\u2028two\u2029three')", Type(text="one\u2028two\u2029three")),
        ("<think>" + "so " * 9000 + "</think>Agent.wait()", Wait()),
    ],
)
def test_accepts_what_the_functions_take(answer: str, action: Action) -> None:
    assert parsed(answer) == action


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("", "empty"),
        ("I will click the button", "not one Python call"),
        ("Agent.clik(e1)", "did you mean Agent.click?"),
        ("Agent.click()", "needs the argument coordinates"),
        ("Agent.click(e1, colour='red')", "no argument colour"),
        ("Agent.click(e1, coordinates=e1)", "given twice"),
        ("Agent.click(e1, 1, 'left', 4)", "at most 3 arguments"),
        ("Agent.click(*[e1])", "no place"),
        ("Agent.click(**{'a': 1})", "no place"),
        ("Agent.click(e9)", "there is no element e9"),
        ("Agent.click([1280, 0])", "outside the screen of 1280x720"),
        ("Agent.click([-1, 0])", "outside the screen"),
        ("Agent.click([1.0, 2])", "whole numbers"),
        ("Agent.click([True, 2])", "whole numbers"),
        ("Agent.click([1, 2, 3])", "write [x, y]"),
        ("Agent.click(e1, num_clicks=9)", "from 1 to 3"),
        ("Agent.click(e1, num_clicks=True)", "from 1 to 3"),
        ("Agent.click(e1, button_type='x1')", "one of 'left', 'middle', 'right'"),
        ("Agent.type(text=3)", "a string in quotes"),
        ("Agent.type(text='a\\x1b[2J')", "control character '\\x1b'"),
        ("Agent.type(text='\\ud800')", "can't be typed"),
        (f"Agent.type(text='{'a' * 1001}')", "at most 1000 characters"),
        ("Agent.type(text=f'{1}')", "without a prefix"),
        ("Agent.type(text=b'x')", "without a prefix"),
        ("Agent.type(text=rb'x')", "without a prefix"),
        ("Agent.type(text=fr'{1}')", "without a prefix"),
        ("Agent.type(text=r'\\')", "a string is not closed"),
        ("Agent.type(text='a' + 'b')", "no place"),
        ("Agent.type(text='open)", "not closed"),
        ("Agent.type(overwrite=1)", "write True or False"),
        ("Agent.scroll(e1, 'left')", "one of 'up', 'down'"),
        ("Agent.open_app('bash')", "write one of"),
        ("Agent.switch_window(w5)", "there is no window w5"),
        ("Agent.hotkey(['ctrl', 'ctrl', 'alt', 'shift', 'a'])", "one to 4 keys"),
        ("Agent.hotkey([])", "one to 4 keys"),
        ("Agent.hotkey(['hyper'])", "'hyper' is no key"),
        ("Agent.hotkey('ctrl')", "a list of one to 4 keys"),
        ("Agent.exit()", "needs the argument success"),
        ("Agent.wait().x", "not a call"),
        ("Agent.wait()()", "only calls like"),
        ("Agent.__class__(1)", "no function Agent.__class__"),
        ("Agent.__init__.__globals__['os'].system('x')", "only calls like"),
        ("__import__('os').system('x')", "only calls like"),
        ("exec('x')", "no function exec"),
        ("(lambda: 1)()", "no place"),
        ("Agent.wait(); Agent.wait()", "no place"),
        ("```python\nAgent.wait()\nAgent.wait()\n```", "2 lines"),
        ("```python\nAgent.wait()", "not closed"),
        ("```\nnot DONE\n```", "not a call"),
        ("```never FAIL```", "invalid syntax"),
        ("```\nmaybe\nAgent.exit(success=True)\n```", "2 lines"),
        ("Agent.click(" + "(" * 300 + ")" * 300 + ")", "deeply nested"),
        ("Agent.click(" + "-" * 380 + "1)", "write [x, y]"),
        ("\x00", "no place"),
        ("Agent.wait(\x00)", "no place"),
        ("Ａgent.wait()", "no place"),
        ("x" * (MAX_ANSWER + 1), "longer than 8192 bytes"),
        ("é" * (MAX_ANSWER // 2 + 1), "longer than 8192 bytes"),
        ("CalcTools.save()", "no function CalcTools.save"),
        ("Agent.type(text='it's')", "ends before 's'"),
        ("Agent.type(text='the dogs' bone')", "ends before 'bone'"),
        ('Agent.type(text="say "hi" now")', "ends before 'hi'"),
        ("Agent.type(text=it's)", "the quote after it opens no string"),
        ("Agent.type(text=\u2019so\u2019)", "no quotation mark of Python"),
        ("```python\nAgent.type(text='a\nb')\n```", "a line break inside a string is written"),
        ("Agent.type(text='a\nb\nc')", "a line break inside a string is written"),
        ("Agent.type(text='a\x0bb')", r"control character '\x0b'"),
        ("Agent.type(text='a\x85b')", r"control character '\x85'"),
        ("Agent.type(text='a\x1cb')", r"control character '\x1c'"),
        ("<think>maybe\n```\nAgent.exit(True)\n```", "the reasoning that <think> begins does not end"),
        ("<think>Agent.exit(True)</think>", "nothing stands after the reasoning"),
    ],
)
def test_says_why_it_refuses(answer: str, said: str) -> None:
    refusal = parsed(answer)
    assert isinstance(refusal, RefusedAnswer)
    assert said in refusal.reason
    assert refusal.reason.isprintable()


def test_the_paper_form_insists_on_a_block() -> None:
    assert isinstance(parsed("Agent.wait()", "published"), RefusedAnswer)
    assert parsed("```python\nAgent.wait()\n```", "published") == Wait()


WORDS = st.sampled_from(
    [
        *(f"Agent.{function.name}" for function in GUI),
        *"( [ ] ) = , ' \" \\ ``` { } : * @ # - . 0x 1e9 e1 w1 coordinates text keys True None lambda await f'".split(),  # noqa: SIM905
        *("\n", "\x00", "\ud800", "\u202e"),
        *("'ctrl'", "[1, 2]", "__import__", "WAIT", "python\n", "'''", "\\N{", "\\u", "\\x", "not ", "~", "9" * 50),
    ]
)
NASTY = st.lists(st.one_of(WORDS, st.text(max_size=5)), max_size=60).map("".join)


@given(st.one_of(NASTY, st.text(max_size=200), NASTY.map(lambda text: f"Agent.type(text='{text}')")))
@example("(" * MAX_ANSWER)
@example("Agent." * 1300)
@example("```" * 2700)
@example("'" * MAX_ANSWER)
@example("\\" * MAX_ANSWER)
@example("Agent.click([" + "9" * 8000 + ", 1])")
@example("CalcTools.adjust_row_height('3', " + "9" * 400 + ")")
@example("Agent.hotkey([" + "'a'," * 1500 + "])")
@example("\n" * MAX_ANSWER)
def test_only_typed_actions_or_typed_refusals_come_out(answer: str) -> None:
    began = time.process_time()
    for app in ("text_editor", "libreoffice_calc", "libreoffice_impress"):
        result = parse(answer, app, ELEMENTS, WINDOWS)
        assert isinstance(result, Action | RefusedAnswer)
        if isinstance(result, Action):
            assert parse(line(result), app, ELEMENTS, WINDOWS) == result
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize("filler", ["(", "[", "'", '"', "\\", "-", "Agent.", "```", "é", "a=1,", "\n", "\x00", "'\\N{"])
def test_time_and_memory_are_bounded_for_long_answers(filler: str) -> None:
    answer = filler * (200_000 // len(filler))
    tracemalloc.start()
    began = time.process_time()
    for text in (answer, answer[: MAX_ANSWER // 2], f"Agent.type(text='{answer[: MAX_ANSWER // 2]}')"):
        assert isinstance(parse(text, "text_editor"), Action | RefusedAnswer)
    seconds, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 1.0
    assert peak < 4 << 20


PLACES = st.one_of(st.sampled_from(["e1", "e2"]), st.tuples(st.integers(0, 1279), st.integers(0, 719)))
TEXTS = st.text(st.characters(exclude_categories=("Cc", "Cs")) | st.sampled_from("\n\t"), max_size=100)
ACTIONS = st.one_of(
    st.builds(Click, coordinates=PLACES, num_clicks=st.integers(1, 3), button_type=st.sampled_from(["left", "right"])),
    st.builds(Type, coordinates=st.none() | PLACES, text=TEXTS, overwrite=st.booleans(), enter=st.booleans()),
    st.builds(Hotkey, keys=st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=4).map(tuple)),
    st.builds(Quote, content=TEXTS),
    st.builds(Exit, success=st.booleans()),
)


def test_published_models_names_of_arguments_are_taken() -> None:
    assert parsed("Agent.click(coordinate=[5, 6], clicks=2)") == Click(coordinates=(5, 6), num_clicks=2)
    assert "given twice" in parsed("Agent.click(coordinate=[5, 6], coordinates=[5, 6])").reason  # type: ignore[union-attr]
    functions = [*GUI, *(function for tools in TOOLS.values() for function in tools)]
    own = {param.name for function in functions for param in function.params}
    assert not own & set(ALIASES) - {"position"}, "an alias is no function's own argument"


def test_a_raw_string_takes_backslashes_as_they_are() -> None:
    assert parsed(r"Agent.type(text=r'\1 \w+ \'\400')") == Type(text=r"\1 \w+ \'\400")
    assert parsed('Agent.type(text=R"""\\n"""  )') == Type(text=r"\n")


@given(ACTIONS)
def test_every_action_has_a_line_that_parses_back_to_it(action: Action) -> None:
    assert parsed("a thought\n" + line(action)) == action


def test_the_command_lines_verdict() -> None:
    assert verdict("Agent.click(e12)", "vlc") == {
        "verdict": "action",
        "action": {"function": "click", "coordinates": "e12", "num_clicks": 1, "button_type": "left"},
        "reason": None,
    }
    refused = verdict("rm -rf /", "terminal")
    assert refused["verdict"] == "refused"
    assert refused["action"] is None
    assert refused["reason"]
    for app in APP_NAMES:
        assert verdict("Agent.wait()", app)["action"] == {"function": "wait"}
    with pytest.raises(KeyError):
        verdict("Agent.wait()", "emacs")


def test_keys_are_lower_case_names() -> None:
    assert all(name == name.lower() for name in KEYS)
    assert set(string.ascii_lowercase) <= set(KEYS)


def test_two_answers_on_a_line_are_refused_by_what_follows() -> None:
    refused = parsed("<answer>Agent.wait()</answer> <answer>Agent.exit(True)</answer>", "published")
    assert isinstance(refused, RefusedAnswer)
    assert refused.reason == "more follows </answer> on its line: write one <answer> with one action, at the end"
