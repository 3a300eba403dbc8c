"""What a prompt tells of a function's arguments, of a task, and of a screen of another size."""

from __future__ import annotations

import pytest

from apis.actions.grammar import ALIASES, RefusedAnswer, parse
from apis.actions.gui import GUI, Click, Quote, Scroll, Wait
from apis.catalogue import TOOLS
from apis.observation import Observation
from apis.prompts.compact import render_compact
from apis.prompts.system import published_system

FUNCTIONS = [*GUI, *(function for tools in TOOLS.values() for function in tools)]
CHOICES = [(function, param) for function in FUNCTIONS for param in function.params if param.kind == "choice"]


@pytest.mark.parametrize(("function", "param"), CHOICES, ids=lambda one: one.name)
def test_every_choice_is_told_in_the_prompt(function: object, param: object) -> None:
    app = next((app for app, tools in TOOLS.items() if function in tools), "")
    (line,) = {
        line
        for line in published_system(app, "both", "t").splitlines()
        if line.strip() == f"{param.name}: {param.told}"
    }
    assert all(str(value) in line for value in param.limits)


def test_a_task_is_never_cut() -> None:
    task = "write \u202e " * 900 + "into cell Z9"
    assert "into cell Z9" in published_system("", "both", task)
    first = render_compact(task, [], Observation((), ()), None).splitlines()[0]
    assert first.endswith("into cell Z9")
    assert "\u202e" not in first


def test_published_models_names_of_arguments_are_taken() -> None:
    assert parse("Agent.click(coordinate=[5, 6], clicks=2)", "") == Click(coordinates=(5, 6), num_clicks=2)
    assert parse("Agent.scroll(coordinate=[5, 6], direction='up')", "") == Scroll(coordinates=(5, 6), direction="up")
    twice = parse("Agent.click(coordinate=[5, 6], coordinates=[5, 6])", "")
    assert isinstance(twice, RefusedAnswer)
    assert "given twice" in twice.reason
    own = {param.name for function in FUNCTIONS for param in function.params}
    assert not own & set(ALIASES) - {"position"}, "an alias is no function's own argument"


def test_an_answer_may_stand_in_a_fence_of_its_own() -> None:
    assert parse("so\n<answer>\n```python\nAgent.wait()\n```\n</answer>", "", form="published") == Wait()
    assert parse("<answer>Agent.wait()</answer>", "") == Wait()
    assert parse("<answer>Agent.wait()</answer>", "", form="published") == Wait()
    typed = parse("Agent.quote('<answer>x</answer>')", "")
    assert typed == Quote(content="<answer>x</answer>")


def test_places_lie_on_the_screen_that_there_is() -> None:
    assert parse("Agent.click([1900, 1000])", "", screen=(1920, 1080)) == Click(coordinates=(1900, 1000))
    small = parse("Agent.click([1900, 1000])", "")
    assert isinstance(small, RefusedAnswer)
    assert "1280x720" in small.reason
