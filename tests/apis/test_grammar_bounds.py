"""Where the grammar's bounds lie, to the character, and which of two readings of a fence or a number is taken."""

import pytest

from apis.actions.grammar import (
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
from apis.actions.gui import Action, Click, Hotkey, Tool, Type, Wait


def parsed(answer: str, form: str = "compact", app: str = "text_editor") -> Action | RefusedAnswer:
    return parse(answer, app, {"e1", "e2"}, {"w1"}, form)


def reason(answer: str, form: str = "compact", app: str = "text_editor") -> str:
    found = parsed(answer, form, app)
    assert isinstance(found, RefusedAnswer), found
    return found.reason


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
    ("code", "said"),
    [
        ("Agent.click([1e9, 2])", "digits only"),
        ("Agent.click([0x123456789, 2])", "digits only"),
        ("Agent.click([0x1g, 2])", "digits only"),
        ("Agent.click([0b1, 2])", "digits only"),
        ("Agent.click(e2x)", "write [x, y]"),
        ("Agent.click(e22x)", "write [x, y]"),
        ("Agent.click(_2x)", "write [x, y]"),
        ("Agent.click 1", "not one Python call"),
        ("Agent.switch_window('x')", "write a window id as listed"),
        ("Agent.switch_window(3)", "write a window id as listed"),
        ("Agent.switch_window(x)", "write a window id as listed"),
        ("Agent.switch_window([w1])", "write a window id as listed"),
        ("Agent.hotkey(['ctrl', 3])", "'that' is no key"),
        ("Agent.click([0, 720])", "outside the screen"),
        ("Agent.click([0, -1])", "outside the screen"),
        ("1", "not a call"),
        ("1a", "digits only"),
        ("Agent.click({'x': 1})", "write [x, y]"),
        ("Agent.click({}, a: 1)", "the character ':' has no place"),
        ("Agent.click({'x': {}, 'y': 1})", "write [x, y]"),
        ("Agent.click([1: 2])", "the character ':' has no place"),
        ("r'x'a", "the string 'x' ends before 'a'"),
        ("br'x'", "without a prefix"),
        ("_r'x'", "opens no string"),
        ("_'x'", "opens no string"),
        ("a'x'", "opens no string"),
        ("1r'x'", "digits only"),
        ("'x'", "not a call"),
        ("Agent.type(text='\\477')", "the escape \\477 is no character"),
        ("Agent.type(text='''x'')", "a string is not closed"),
        ("Agent.type(text='a\\", "a string is not closed"),
        ("Agent.type(text='a\\'", "a string is not closed"),
        ("CalcTools.set_zoom(" + "9" * 5000 + ")", "5000 digits are too many"),
        ("CalcTools.set_zoom(value=" + "9" * 5000 + ")", "value: 5000 digits are too many"),
    ],
)
def test_how_a_line_is_refused(code: str, said: str) -> None:
    assert said in reason(code)


@pytest.mark.parametrize(
    ("code", "action"),
    [
        ("Agent.click([0x10, 0xA])", Click(coordinates=(16, 10))),
        ("Agent.click([ 0x0, 1 ])", Click(coordinates=(0, 1))),
        ("Agent.hotkey(('a', 'b'))", Hotkey(keys=("a", "b"))),
        (r"Agent.type(text='\377\q\x41')", Type(text="\xff\\qA")),
        ("Agent.type(text='')", Type(text="")),
        ("Agent.type(text='''''')", Type(text="")),
        ("Agent.type(e1,\ttext='x')", Type(coordinates="e1", text="x")),
    ],
)
def test_what_a_line_means(code: str, action: Action) -> None:
    assert parsed(code) == action


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


def test_what_another_window_or_space_has_is_said() -> None:
    assert "bring a window of" in reason("CalcTools.save()") or "no function CalcTools.save" in reason(
        "CalcTools.save()"
    )
    refused = parse("CalcTools.save()", "libreoffice_calc", space="gui")
    assert isinstance(refused, RefusedAnswer)
    assert refused.reason.startswith("CalcTools.save is not allowed; Agent has ")
    api = parse("Agent.click(e1)", "libreoffice_calc", space="api")
    assert isinstance(api, RefusedAnswer)
    assert api.reason.startswith("Agent.click is not allowed; ")
    assert "; CalcTools has " in api.reason


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
