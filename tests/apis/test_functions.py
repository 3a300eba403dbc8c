"""What holds of every application's functions alike: prompt, guest, values, and where they can be called."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis.actions.gui import GUI, functions_for
from apis.applications import BY_FOLDER
from apis.catalogue import TOOLS
from apis.functions.declaration import Function
from tests.apis import declared

FOLDER = {app.name: folder for folder, app in BY_FOLDER.items()}
ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=110)
EVERY = {f"{function.owner}.{function.name}": function for functions in TOOLS.values() for function in functions}


def of(app: str) -> dict[str, Function]:
    """An application's functions by name."""
    return {function.name: function for function in TOOLS[app]}


@pytest.mark.parametrize("app", TOOLS)
def test_the_guest_carries_out_exactly_what_is_declared(app: str) -> None:
    office = app.startswith("libreoffice")
    owner = "" if office else TOOLS[app][0].owner
    assert declared.methods_of(FOLDER[app], owner) == declared.arguments_of(of(app))


@pytest.mark.parametrize("app", TOOLS)
def test_the_prompt_shows_every_function_and_every_argument_of_the_application_in_front(app: str) -> None:
    declared.prompt_shows(app, of(app))
    assert not [other for other in TOOLS if other != app and TOOLS[app][0].owner in declared.prompt(other)]
    assert TOOLS[app][0].owner not in declared.prompt("text_editor")
    assert set(functions_for(app)) - set(functions_for("terminal")) == {
        f"{TOOLS[app][0].owner}.{name}" for name in of(app)
    }
    assert not {function.name for function in GUI} & set(of(app))


@given(st.sampled_from(declared.params_of(EVERY)), ANYTHING | st.lists(ANYTHING, max_size=4))
def test_a_value_is_fit_once_and_for_all_or_refused(param: Any, value: Any) -> None:
    declared.fit_once(param, value)
