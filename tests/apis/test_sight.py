"""A model that sees pictures: the unit of its places, what its prompt leaves out, templates, and answers in tags."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis.actions.arguments import WHOLE, counted, pixel
from apis.actions.grammar import RefusedAnswer, parse
from apis.actions.gui import Click, Exit, Type
from apis.observation import from_guest
from apis.prompts import Sight
from apis.prompts.published import render_published
from apis.prompts.template import Template
from apis.prompts.text import Turn
from runtime.errors import ConfigError

SCREEN = (1920, 1080)
PICTURE = Sight(observed="picture", unit="thousandths")
FRAME = {
    "windows": [{"id": 7, "class": "Pcmanfm", "title": "{{task}}", "active": True}],
    "elements": [["icon", "a.txt {{task}}", "", 1900, 1060, 20, 20, ["sen"], 0]],
}


def answer(text: str, unit: str = "thousandths", form: str = "published") -> object:
    return parse(text, "file_manager", (), (), form, screen=SCREEN, unit=unit)  # type: ignore[arg-type]


def shown(sight: Sight, task: str = "Open a.txt") -> list[str]:
    history = [Turn("<answer>Agent.wait()</answer>", "Agent.wait()", "ok {{task}}")]
    messages = render_published(task, "file_manager", history, from_guest(FRAME, SCREEN), "done", sight=sight)
    return [message["content"] for message in messages]


@pytest.mark.parametrize(
    ("place", "meant"), [("[0, 0]", (0, 0)), ("[1000, 1000]", (1919, 1079)), ("[500, 250]", (960, 270))]
)
def test_places_from_0_to_1000_are_pixels_of_the_screen(place: str, meant: tuple[int, int]) -> None:
    assert answer(f"<answer>Agent.click(coordinate={place})</answer>") == Click(coordinates=meant)


@pytest.mark.parametrize("place", ["[1001, 5]", "[-1, 5]", "[0.5, 5]", "e1", "[True, 5]"])
def test_other_places_are_refused(place: str) -> None:
    assert isinstance(answer(f"<answer>Agent.click({place})</answer>"), RefusedAnswer)


@given(st.integers(800, 4096), st.data())
def test_a_place_that_is_listed_is_found_again(side: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(-50, side + 50))
    said = counted(at, side, "thousandths")
    assert 0 <= said <= WHOLE
    assert abs(pixel(said, side) - min(max(at, 0), side - 1)) <= side / WHOLE / 2 + 1
    assert counted(at, side, "pixels") == at
    assert (pixel(0, side), pixel(WHOLE, side)) == (0, side - 1)


@pytest.mark.parametrize(
    "text",
    [
        "<answer>Agent.exit(success=True)</answer>",
        "<think>so</think><answer>Agent.exit(success=True)</answer>",
        "I am done. <answer>\nAgent.exit(success=True)\n</answer>\r\n",
        "<answer>```python\nAgent.exit(success=True)\n```</answer>",
        "```python\nAgent.exit(success=True)\n```",
        "so\n<answer>Agent.exit(success=True)",
    ],
)
def test_an_answer_in_tags_needs_no_fence(text: str) -> None:
    assert answer(text) == Exit(success=True)


def test_tags_within_a_text_are_text() -> None:
    said = "```python\nAgent.type(text='a.<answer>Agent.wait()</answer>')\n```"
    assert answer(said) == Type(text="a.<answer>Agent.wait()</answer>")
    assert isinstance(answer("Agent.wait()"), RefusedAnswer), "the published form wants a fence or tags"


def test_a_model_that_sees_the_screen_reads_no_tree() -> None:
    system, *_, now = shown(PICTURE)
    assert "a picture of the screen and the result" in system
    assert "coordinates: [x, y] from 0 to 1000 across and down the screen" in system
    assert "the screen is 1920x1080 pixels" in system
    assert "in screen pixels" not in system
    assert ("a.txt" in now, "A11y" in now, "0x00000007" in now) == (False, False, True)
    *_, both = shown(Sight(observed="both", unit="thousandths"))
    assert "(995, 992)\t(10, 19)" in both


def test_a_template_is_filled_once() -> None:
    template = Template(system="{{task}} {{ width }}x{{height}}", earlier="<{{last}}>", state="[{{tree}}|{{last}}]")
    system, earlier, _, now = shown(Sight(template=template), task="Do {{functions}}")
    assert (system, earlier) == ("Do {{functions}} 1920x1080", "<None>")
    assert now.startswith("[tag\ttext")
    assert "a.txt {{task}}" in now
    assert now.endswith("|done]")


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"system": "{{task}} {{secret}}"}, r"prompt.template.system: there is no place secret, only functions"),
        ({"system": "hello"}, r"neither system nor state has the place \{\{task\}\}"),
    ],
)
def test_a_template_that_can_not_be_filled_is_refused(texts: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Template(**texts)
