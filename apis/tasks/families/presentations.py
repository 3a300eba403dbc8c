"""What families of presentations share: a few slides with a title and an outline, and the oracle that changes them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random
from typing import Final

from apis.actions.gui import Click, Type, Wait
from apis.catalogue import call
from apis.documents.odp import MIME, make_odp
from apis.tasks.families.document import DocumentKind, Saving, in_the_way
from apis.tasks.oracle import keys
from apis.tasks.verify import office
from apis.tasks.view import Goal, Move, View
from apis.tasks.words import words

IMPRESS = "libreoffice_impress"
TITLE: Final = "title"
OUTLINE: Final = "outline"
KINDS = (TITLE, OUTLINE)  # of the boxes of every slide, in their order

Texts = tuple[str, str]  # of a slide's title and of its outline, lines parted by \n
ORDINALS = ("first", "second", "third", "fourth")


@dataclass(frozen=True)
class PresentationGoal(Goal):
    """What an instance asks for; `target` is the presentation's file."""

    slides: tuple[Texts, ...] = ()
    finish: tuple[Texts, ...] = ()
    slide: int = 1  # the one the task is about, from 1


def slides(random: Random, split: str, count: int) -> tuple[list[str], tuple[Texts, ...]]:
    """Two words to use, and `count` slides of words none of which begins another."""
    lines = [random.choice((1, 2)) for _ in range(count)]
    drawn = words(random, split, 2 + count + sum(lines))
    spare, drawn = drawn[:2], drawn[2:]
    made = []
    for wide in lines:
        title, *outline = (drawn.pop() for _ in range(1 + wide))
        made.append((title, "\n".join(outline)))
    return spare, tuple(made)


def written(goal_slides: tuple[Texts, ...], slide: int, box: int, text: str) -> tuple[Texts, ...]:
    """The slides with another text in one box; `slide` counts from 1."""
    title, outline = goal_slides[slide - 1]
    new = (text, outline) if box == 0 else (title, text)
    return (*goal_slides[: slide - 1], new, *goal_slides[slide:])


PRESENTATION = DocumentKind(
    app=IMPRESS,
    goals=PresentationGoal,
    mime=MIME,
    check="deck_is",
    data=lambda made: make_odp([[(TITLE, title), (OUTLINE, outline)] for title, outline in made.slides]),
    expected=lambda made: [{"boxes": [list(pair) for pair in zip(KINDS, texts, strict=True)]} for texts in made.finish],
    wanted=office.presentation,
    values=lambda made: {word for texts in (*made.slides, *made.finish) for text in texts for word in text.split()},
)


SAVING = Saving(call("ImpressTools", "save"), ("Agent.switch_window(", "ImpressTools.go_to_slide", "ImpressTools.get_"))
EMPTIED = Type(text="", overwrite=True)
_CURRENT = re.compile(r"slides: \d+; current: (\d{1,9})(?!\d)")
_BOX = re.compile(r"- Box \d+ \((\w+)\)(?:: (.*))?")


def goal_of(view: View) -> PresentationGoal:
    """The goal. Raises TypeError for one of another kind."""
    return PRESENTATION.goal(view.goal)


def current(view: View) -> int:
    """The number of the slide that is shown; 0 while that is not known."""
    found = _CURRENT.match(view.observation.info)
    return int(found[1]) if found else 0


def listed(view: View) -> tuple[tuple[str, ...], ...]:
    """The texts of each slide's boxes, as app info tells them."""
    slides: list[list[str]] = []
    for row in view.observation.info.split("\n"):
        if row.startswith("Slide "):
            slides.append([])
        elif (found := _BOX.match(row)) and slides:
            slides[-1].append((found[2] or "").replace("\\n", "\n"))
    return tuple(tuple(texts) for texts in slides)


def wrong(view: View) -> tuple[int, int, str] | None:
    """The first box that says something else than it should, that asked for first: slide from 1, box from 0, text."""
    goal, now = goal_of(view), listed(view)
    order = sorted(range(len(goal.finish)), key=lambda at: at != goal.slide - 1)
    for at in order:
        for box, text in enumerate(goal.finish[at]):
            if at < len(now) and box < len(now[at]) and now[at][box] != text:
                return at + 1, box, text
    return None


def blocked(view: View) -> Move | None:
    """What to do about what is in the way, or a presentation that is not known yet."""
    return in_the_way(view, IMPRESS) or (None if current(view) else ("look again", Wait()))


def shown(view: View, slide: int) -> Move | None:
    """The key that goes towards a slide; None where it is shown."""
    now = current(view)
    if now == slide:
        return None
    return keys(f"slide {now}, want {slide}", "pagedown" if now < slide else "pageup")


def _by_gui(view: View) -> Move:
    save_by_mouse = view.route.random() < 0.3
    if move := blocked(view):
        return move
    if view.did(EMPTIED):  # a file saved while the caret is in the box would have its old text
        return keys("empty -> leave the box", "esc")
    left = wrong(view)
    if left is None:
        return SAVING.by_gui(view, save_by_mouse)
    slide, box, text = left
    if move := shown(view, slide):
        return move
    lines = listed(view)[slide - 1][box].split("\n")
    at = _differs(lines, text.split("\n"))
    said = lines[at] if at is not None else lines[0]
    place = view.find("paragraph", lambda e: e.text == said) if said else None
    if place is None:
        return "look again", Wait()
    into, over = Click(coordinates=place, num_clicks=2), Click(coordinates=place, num_clicks=3)
    if at is not None:
        new = text.split("\n")[at]
        if view.did(over):
            return f"{said} selected -> {new}", Type(text=new)
        if view.did(into):
            return f"caret in {said} -> select the line", over
    elif view.did(into):
        return f"caret in {said} -> {_short(text) or 'empty'}", Type(text=text, overwrite=True)
    return f"slide {slide}, {place} paragraph {said} -> edit", into


def _differs(now: list[str], wanted: list[str]) -> int | None:
    """Which of several lines is the only one to be changed; None where the whole box is written again."""
    if len(now) != len(wanted) or len(now) == 1:
        return None
    other = [at for at, pair in enumerate(zip(now, wanted, strict=True)) if pair[0] != pair[1]]
    return other[0] if len(other) == 1 else None


def _by_tools(view: View) -> Move:
    if move := blocked(view):
        return move
    left = wrong(view)
    if left is None:
        return SAVING.by_tool(view)
    slide, box, text = left
    if not text:
        return f"slide {slide}, box {box} -> empty", call(
            "ImpressTools", "delete_content", slide_index=slide, box_index=box
        )
    written = call("ImpressTools", "write_text", content=text, page_index=slide, box_index=box)
    return f"slide {slide}, box {box} -> {_short(text)}", written


def _short(text: str) -> str:
    return text.replace("\n", " / ")


ROUTES = {"gui": _by_gui, "api": _by_tools}
