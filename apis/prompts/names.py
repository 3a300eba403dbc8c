"""The names that a compact prompt gives to elements and windows, and the places they stand for."""

from __future__ import annotations

from apis.actions.gui import Place
from apis.applications import BY_FOLDER, modules_brought
from apis.apps.ranking import RANKED
from apis.observation import Element, Observation

COMPACT_WINDOWS, COMPACT_ELEMENTS = 8, 60
_NAMES = tuple(f"e{n}" for n in range(1, COMPACT_ELEMENTS + 1))
# What is worked with comes first: by application, its folder's order of elements.
_ORDERS = RANKED | {folder: module.ranked for folder, module in modules_brought("ranking")}
_RANKED = {BY_FOLDER[folder].name: ranked for folder, ranked in _ORDERS.items()}


def element_names(observation: Observation) -> dict[str, Element]:
    """The elements a compact prompt lists, by the names it gives them, in its order.

    Of several windows only the active one can be worked with, so elements known to belong to another are left out.
    Disabled ones stay, marked, where all have room. A spreadsheet lists what is worked with before its menus, and of
    its tool bars a few buttons.
    """
    return dict(zip(_NAMES, usable(observation), strict=False))


def usable(observation: Observation) -> list[Element]:
    """What can be worked with, in the order of the compact form; where that is nothing, what is behind it."""
    kept: dict[str, list[Element]] = observation.__dict__  # prompt, grammar and plan ask for the same look
    if "usable" not in kept:
        kept["usable"] = _usable(observation)
    return kept["usable"]


def _usable(observation: Observation) -> list[Element]:
    active = observation.active
    here = [e for e in observation.elements if e.window in (-1, active) or "behind" in e.states]
    live = [e for e in here if "sen" in e.states or not e.states]
    if (ranked := _RANKED.get(observation.app)) is not None:
        return ranked(live)
    marked = [e for e in here if "sen" in e.states or not e.states or ("off" in e.states and "bar" not in e.states)]
    return marked if len(marked) <= COMPACT_ELEMENTS else live


def place(where: Place, observation: Observation) -> tuple[int, int]:
    """Screen pixels of a place. Raises KeyError for an element that the observation does not list."""
    if isinstance(where, str):
        element = element_names(observation)[where]
        return element.cx, element.cy
    return where


def window_names(observation: Observation) -> dict[str, int]:
    """Window names, "w1" and the published form's hexadecimal ones, to X window numbers."""
    numbers = [window.number for window in observation.windows]
    named = {f"w{n}": number for n, number in enumerate(numbers[:COMPACT_WINDOWS], 1)}
    return named | {f"0x{number:08x}": number for number in numbers}
