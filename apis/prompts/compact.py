"""The compact form of a prompt, for small models: one text of short lines, in which elements and windows have names.

Every text of the guest is escaped and cut. Successive prompts of an episode begin with the same text.
"""

from __future__ import annotations

from collections.abc import Sequence

from apis.actions.gui import Place
from apis.actions.spaces import ActionSpace
from apis.applications import BY_FOLDER, modules_brought
from apis.apps.ranking import RANKED
from apis.observation import Element, Observation
from apis.prompts import USUAL, Sight
from apis.prompts.text import ESCAPED_MAX, Turn, escaped, whole

LAST_TURNS_COMPACT = 8
COMPACT_TEXT = 80
COMPACT_TERMINAL = 200  # characters of a terminal's last lines
_UNMARKED = {"menu", "menu-item"}  # what the pointer is on, not what was chosen
COMPACT_WINDOWS, COMPACT_ELEMENTS = 8, 60
_NAMES = tuple(f"e{n}" for n in range(1, COMPACT_ELEMENTS + 1))
# What is worked with comes first: by application, its folder's order of elements.
_ORDERS = RANKED | {folder: module.ranked for folder, module in modules_brought("ranking")}
_RANKED = {BY_FOLDER[folder].name: ranked for folder, ranked in _ORDERS.items()}


def row(element: Element) -> str:
    """An element in the compact form: tag, label, and a star where it is selected, checked or the current cell."""
    if element.tag == "terminal":
        label = escaped(_last_lines(element.text), 2 * COMPACT_TERMINAL)
    else:
        label = around(element.label, element.label_caret, COMPACT_TEXT)
        label = "" if label == element.tag.replace("-", " ") else label  # which its tag says
    marked = element.tag not in _UNMARKED and ("sel" in element.states or "chk" in element.states)
    marked = marked or (element.tag == "table-cell" and "foc" in element.states)
    return f"{escaped(element.tag, 40)} {label}".rstrip() + (" *" if marked else "") + marks(element)


def marks(element: Element) -> str:
    """What is said behind an element's label: that it is disabled, or that it is behind a dialog that can't be read."""
    return " (disabled)" * ("off" in element.states) + " (behind)" * ("behind" in element.states)


def around(text: str, caret: int, limit: int) -> str:
    """`text` escaped to at most `limit` characters: its start, or where the caret is not in that, what is around it."""
    at = len(escaped(text[:caret], ESCAPED_MAX)) if caret > 0 else 0
    if at <= limit - 10:
        return escaped(text, limit)
    whole = escaped(text, ESCAPED_MAX)
    first = min(at - limit // 2, len(whole) - limit + 3)
    if first <= 0 or len(whole) <= limit:
        return escaped(text, limit)
    return f"...{whole[first:]}" if len(whole) - first <= limit - 3 else f"...{whole[first : first + limit - 6]}..."


def left_out(observation: Observation, listed: int, there: int) -> str:
    """What there is more than is listed, "" where that is nothing."""
    parts = [f"{observation.beyond} out of view"] * (observation.beyond > 0)
    parts += [f"{there - listed} not listed"] * (there > listed)
    parts += ["some not read"] * observation.cut
    return ", ".join(parts)


def _last_lines(text: str) -> str:
    """The last whole lines of at most `COMPACT_TERMINAL` characters together; of a longer line its end."""
    if len(text) <= COMPACT_TERMINAL:
        return text
    end = text[-COMPACT_TERMINAL:]
    return end.partition("\n")[2] or end


def render_compact(
    task: str,
    history: Sequence[Turn],
    observation: Observation,
    last: str | None,
    space: ActionSpace = "both",
    *,
    sight: Sight = USUAL,
) -> str:
    """One step's prompt in the compact form. `last` is the result of the last action or the reason of its refusal.

    A space that lacks something is named below the task. Without the tree in `sight` no element is named, nor what an
    application says of itself: the caller adds the picture that shows it.
    """
    lines = [f"task: {whole(task)}"]
    lines += [f"actions: {space}"] * (space != "both")
    lines += [f"did: {escaped(turn.line or 'refused', 2 * COMPACT_TEXT)}" for turn in history[-LAST_TURNS_COMPACT:]]
    lines.append(f"app: {escaped(observation.app, 80) or 'none'}")
    for n, window in enumerate(observation.windows[:COMPACT_WINDOWS], 1):
        title = escaped(window.title, COMPACT_TEXT) + " (minimised)" * window.minimised
        lines.append(f"w{n} {'* ' if window.active else ''}{title}".rstrip())
    if not sight.tree:
        return "\n".join([*lines, f"last: {escaped(last, 2 * COMPACT_TEXT) if last else 'None'}"])
    elements = element_names(observation)
    lines += [f"{name} {row(element)}" for name, element in elements.items()]
    if more := left_out(observation, len(elements), len(usable(observation))):
        lines.append(f"more: {more}")
    if observation.unread:
        lines.append(f"front: {observation.unread}")
    sheet = observation.app == "libreoffice_calc" and any(element.tag == "table-cell" for element in elements.values())
    if observation.info and not sheet:  # what the info says of a sheet, its cells say
        lines.append(f"info: {escaped(observation.info, COMPACT_TEXT * 5)}")
    lines.append(f"last: {escaped(last, 2 * COMPACT_TEXT) if last else 'None'}")
    return "\n".join(lines)


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
