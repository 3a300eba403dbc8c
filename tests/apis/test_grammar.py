"""The parser: what it takes, what it refuses, and that nothing else can come out."""

import time
import tracemalloc
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from apis.actions.arguments import KEYS
from apis.actions.grammar import (
    ALIASES,
    MAX_ANSWER,
    MAX_CODE,
    MAX_DEPTH,
    MAX_READ,
    MAX_REASON,
    RefusedAnswer,
    _printable,
    _string_left_open,
    parse,
)
from apis.actions.gui import (
    GUI,
    Action,
    Click,
    Exit,
    Hotkey,
    Quote,
    Tool,
    Type,
    Wait,
    line,
)
from apis.catalogue import TOOLS

ELEMENTS = {"e1": None, "e2": None}
WINDOWS = {"w1": 7, "0x00000007": 7}


def parsed(answer: str, form: str = "compact", app: str = "text_editor") -> Action | RefusedAnswer:
    return parse(answer, app, ELEMENTS, WINDOWS, form)


def reason(answer: str, form: str = "compact", app: str = "text_editor") -> str:
    found = parsed(answer, form, app)
    assert isinstance(found, RefusedAnswer), found
    return found.reason


ANSWERS: dict[str, list[dict[str, str]]] = yaml.safe_load(Path(__file__).with_name("answers.yaml").read_text("utf-8"))
LONG = [
    (f"Agent.type(text='{'a' * 1001}')", "at most 1000 characters"),
    ("Agent.click(" + "(" * 300 + ")" * 300 + ")", "deeply nested"),
    ("Agent.click(" + "-" * 380 + "1)", "write [x, y]"),
    ("x" * (MAX_ANSWER + 1), "longer than 8192 bytes"),
    ("é" * (MAX_ANSWER // 2 + 1), "longer than 8192 bytes"),
    ("CalcTools.set_zoom(" + "9" * 5000 + ")", "5000 digits are too many"),
    ("CalcTools.set_zoom(value=" + "9" * 5000 + ")", "value: 5000 digits are too many"),
]


@pytest.mark.parametrize(("answer", "action"), [(row["answer"], row["is"]) for row in ANSWERS["taken"]])
def test_accepts_what_the_functions_take(answer: str, action: str) -> None:
    found = parsed(answer)
    assert not isinstance(found, RefusedAnswer), found.reason
    assert line(found) == action


@pytest.mark.parametrize(("answer", "said"), [*((row["answer"], row["says"]) for row in ANSWERS["refused"]), *LONG])
def test_says_why_it_refuses(answer: str, said: str) -> None:
    assert said in reason(answer)
    assert reason(answer).isprintable()


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
    assert "given twice" in reason("Agent.click(coordinate=[5, 6], coordinates=[5, 6])")
    functions = [*GUI, *(function for tools in TOOLS.values() for function in tools)]
    own = {param.name for function in functions for param in function.params}
    assert not own & set(ALIASES) - {"position"}, "an alias is no function's own argument"


def test_a_raw_string_takes_backslashes_as_they_are() -> None:
    assert parsed(r"Agent.type(text=r'\1 \w+ \'\400')") == Type(text=r"\1 \w+ \'\400")
    assert parsed('Agent.type(text=R"""\\n"""  )') == Type(text=r"\n")


@given(ACTIONS)
def test_every_action_has_a_line_that_parses_back_to_it(action: Action) -> None:
    assert parsed("a thought\n" + line(action)) == action


def test_an_answer_may_have_its_last_byte() -> None:
    last = "\nAgent.wait()"
    for filler in ("x" * (MAX_ANSWER - len(last)), "é" * ((MAX_ANSWER - len(last)) // 2) + "x"):
        assert len((filler + last).encode()) == MAX_ANSWER
        assert parsed(filler + last) == Wait()
        assert "longer than 8192 bytes" in reason("x" + filler + last)


def test_code_may_have_its_last_character_and_what_nests_nothing_is_not_counted() -> None:
    assert "there is no function" in reason("x" * (MAX_CODE - 2) + "()")
    assert "too long" in reason("x" * (MAX_CODE - 1) + "()")
    for item in ("1, ", "-1, ", "2.5, ", "True, ", "False, ", "None, ", "-2.5, "):
        assert "one to 4 keys" in reason("Agent.hotkey([" + item * 300 + "])"), item
    assert "too long" in reason("Agent.hotkey([" + "ee," * 300 + "])")
    assert "at most 1000 characters" in reason("Agent.type(text='" + "(" * 1001 + "')"), "a text is no code"


def test_brackets_may_be_open_to_the_last_and_count_only_while_they_are() -> None:
    inner = MAX_DEPTH - 1
    assert "write [x, y]" in reason("Agent.click(" + "[" * inner + "]" * inner + ")")
    assert "deeply nested" in reason("Agent.click(" + "[" * (inner + 1) + "]" * (inner + 1) + ")")
    for pair in ("[]", "()", "{}"):
        assert "one to 4 keys" in reason("Agent.hotkey([" + f"{pair}, " * 20 + "])"), pair


@pytest.mark.parametrize(
    ("answer", "form"),
    [
        ("it's ```Agent.wait()``` now", "published"),
        ("```Agent.wait()``` then\n```Agent.exit(True)```", "compact"),
        ("```Agent.wait()``` then\n```Agent.exit(True)```", "published"),
        ("```\n\n  Agent.wait()  \n\n```", "published"),
        ("```python\nAgent.wait()\n``` and so on", "published"),
    ],
)
def test_which_block_is_taken(answer: str, form: str) -> None:
    assert parsed(answer, form) == Wait()


def test_a_paper_form_without_a_block_and_a_block_without_an_end_say_so() -> None:
    assert reason("Agent.wait()", "published") == "there is no ```python block with the action"
    assert reason("it's ```Agent.wait()", "published") == "the code block is not closed with ```"
    assert reason("``````") == "the code block holds 0 lines: write exactly one"


def test_a_reason_is_one_printable_line_of_bounded_length() -> None:
    assert _printable("a\x1b\n\u202eb") == "a\\x1b\\n\\u202eb"
    assert _printable("x" * MAX_REASON) == "x" * MAX_REASON
    assert _printable("x" * (MAX_REASON + 1)) == "x" * (MAX_REASON - 3) + "..."
    assert len(_printable("\u202e" * 2000)) == MAX_REASON


def test_an_argument_s_name_is_told_from_those_that_are_there() -> None:
    assert reason("Agent.wait(1)").startswith("Agent.wait takes at most 0 arguments, not 1")
    assert reason("Agent.wait(x=1)") == "Agent.wait has no argument x: it takes none"
    assert "did you mean coordinates?" in reason("Agent.click(coordinats=e1)")
    assert "there are button_type, coordinates, num_clicks" in reason("Agent.click(zzz=e1)")
    assert "there is no function zz: there are Agent." in reason("zz()")


def arguments(code: str, app: str) -> dict[str, object]:
    found = parsed(code, app=app)
    assert isinstance(found, Tool), found
    return found.arguments


def test_a_literal_is_taken_with_its_sign_and_a_default_where_nothing_is_said() -> None:
    calc, impress = "libreoffice_calc", "libreoffice_impress"
    assert arguments("CalcTools.set_column_values('a', [-1, -2.5, 'x', None, True])", calc) == {
        "column_name": "A", "data": [-1, -2.5, "x", None, True], "start_index": 2,
    }  # fmt: skip
    place = "ImpressTools.insert_file('~/a.mp3', position={'x': -1, 'y': 2.5})"
    assert arguments(place, impress) == {
        "file_path": "~/a.mp3", "slide_index": None, "position": {"x": -1.0, "y": 2.5}, "size": None, "autoplay": False,
    }  # fmt: skip
    for code in ("-True", "-'a'", "[1, [2]]", "[{}]", "[()]", "{'a': 1}"):
        assert "the list holds" in reason(f"CalcTools.set_column_values('a', [{code}])", app=calc), code
    assert "write a list of 1 to 500 values" in reason("CalcTools.set_column_values('a', -1)", app=calc)
    assert "write a list of 1 to 500 values" in reason("CalcTools.set_column_values('a', None)", app=calc)
    assert "whole number from 20 to 600" in reason("CalcTools.set_zoom_level(-20)", app=calc)
    for spot in ("{e1: 1, 'y': 1}", "{'x': e1, 'y': 1}", "{'x': [1], 'y': 1}"):
        assert "in cm from" in reason(f"ImpressTools.insert_file('~/a.mp3', position={spot})", app=impress), spot


def test_names_are_taken_by_their_form_where_nothing_was_seen() -> None:
    for code in ("Agent.click(e9999)", "Agent.switch_window(w99)", "Agent.switch_window('0xdeadbeef')"):
        assert isinstance(parse(code, "vlc"), Action), code
    for code in ("Agent.click(e0)", "Agent.click(e10000)", "Agent.switch_window(w100)", "Agent.switch_window(w0)"):
        assert isinstance(parse(code, "vlc"), RefusedAnswer), code


def test_an_answer_that_was_cut_is_no_action_and_reasoning_may_be_long() -> None:
    refused = parse("Agent.wait()", "vlc", cut="it reached 64 tokens")
    assert isinstance(refused, RefusedAnswer)
    assert refused.reason == "the answer is not whole: it reached 64 tokens"
    thought = "<think>{}</think>\nAgent.wait()"
    fits = thought.format("x" * (MAX_READ - len(thought) + 2))
    assert len(fits) == MAX_READ
    assert parsed(fits) == Wait()
    assert "longer than 8192 bytes" in reason(fits.replace("x", "xx", 1))


@pytest.mark.parametrize(
    ("line", "left_open"),
    [
        ("", False), ("A.b()", False), ("A.b('x')", False), ("A.b('x", True), ("'x", True), ("a'", True), ("ab'", True),
        ("'a'", False), ("a'b'", False), ("a'b'c", False), ("A.b('it\\'s", True), ("A.b('it\\'s')", False),
        ("A.b(\"'\", 'x", True), ("A.b(\"'\", 'x')", False), ("A.b(''' ' ''')", False), ("A.b('''x'", True),
        ("A.b('', 'x", True), ("A.b('')", False), ("A.b('\\477')", False),
    ],
)  # fmt: skip
def test_whether_a_line_ends_inside_a_string(line: str, left_open: bool) -> None:
    assert _string_left_open(line) is left_open


def test_a_call_that_a_line_break_parted_is_told_from_one_that_stands_before_words() -> None:
    broken = "a string is not closed on its line: a line break inside a string is written \\n"
    assert reason("Agent.type(text='one\ntwo')") == broken
    assert reason("so\nAgent.type(text='one\ntwo')") == broken
    assert reason("```\nAgent.type(text='one\ntwo')\n```") == broken
    assert reason("Agent.type(text='one')\ntwo") != broken
    assert reason("Agent.type(text='one\nAgent.clik()") != broken, "the last call is what counts"
    assert parsed("Agent.type(text='one\nAgent.wait()") == Wait()


def test_a_string_that_ends_early_is_shown_in_part() -> None:
    said = reason("Agent.type(text='" + "x" * 60 + "'s end')")
    assert "the string '" + "x" * 35 + "... ends before 's end" in said
    assert "the string 'abc' ends before 's end" in reason("Agent.type(text='abc's end')")
    assert "after the string 'a' has no place" in reason("Agent.type(text='a' + b)")
