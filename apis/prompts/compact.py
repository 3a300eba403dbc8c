"""The compact form of a prompt, for small models: one text of short lines.

Every text of the guest is escaped and cut. Successive prompts of an episode begin with the same text.
"""

from __future__ import annotations

from collections.abc import Sequence

from apis.actions.spaces import ActionSpace
from apis.observation import Element, Observation
from apis.prompts import USUAL, Sight
from apis.prompts.names import COMPACT_WINDOWS, element_names, usable
from apis.prompts.text import ESCAPED_MAX, Turn, escaped, whole

LAST_TURNS_COMPACT = 8
COMPACT_TEXT = 80
COMPACT_TERMINAL = 200  # characters of a terminal's last lines
_UNMARKED = {"menu", "menu-item"}  # what the pointer is on, not what was chosen


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
