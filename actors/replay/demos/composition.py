"""Which episodes can be put together from steps that others show: what a policy without the family could know.

Two steps are alike if they call one function on elements of one kind, with the same keys and the same own words. Words
that are on the screen or in the task are taken from there, so these do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from actors.replay.demos.format import Demo
from actors.replay.messages import StepPayload
from actors.replay.rules.cold_start import family_of

_SHOWN = re.compile(r"^([ew]\d+) (\S+) ?(.*)$", re.MULTILINE)  # a line of an element: its mark, role and name
_WORD = re.compile(r"[\w.\-]+")
NAMED_BY_APPLICATION = {"push-button", "menu", "menu-item", "check-box", "label"}  # other names are a task's


def step_kind(step: StepPayload) -> str:
    """What a step does, without what its task says: "click coordinates=icon num_clicks=1"; "" where it was refused."""
    if step.action is None:
        return ""
    shown = {mark: (role, name) for mark, role, name in _SHOWN.findall(step.observation)}
    words = set(_WORD.findall(step.observation))
    arguments: dict[str, object] = msgspec.json.decode(step.action, type=dict[str, object])
    called = arguments.pop("function")
    return " ".join([str(called), *(f"{key}={_kind(value, shown, words)}" for key, value in arguments.items())])


def _kind(value: object, shown: dict[str, tuple[str, str]], words: set[str]) -> str:
    if not isinstance(value, str):
        return str(value)
    if value in shown:
        role, name = shown[value]
        if value[0] == "w":
            return "window"
        return f"{role}:{re.sub(r'[*]|[(]disabled[)]', '', name).strip()}" if role in NAMED_BY_APPLICATION else role
    known = _WORD.sub(lambda word: "WORD" if word[0] in words else word[0], value)
    return repr(re.sub(r"WORD(\s*,?\s*WORD)*", "WORDS", known))


def composable(episodes: Iterable[Sequence[str]], known: set[str]) -> tuple[int, int]:
    """How many of `episodes`, each the kinds of its steps, have only steps of `known` kinds; how many there are."""
    verdicts = [known.issuperset(kinds) for kinds in episodes]
    return sum(verdicts), len(verdicts)


def kinds_by_family(demos: Iterable[Demo]) -> dict[str, set[str]]:
    """The kinds of steps that demonstrations of each family show."""
    kinds: dict[str, set[str]] = {}
    for demo in demos:
        kinds.setdefault(family_of(demo.task), set()).update(step_kind(step.payload) for step in demo.steps)
    return kinds
