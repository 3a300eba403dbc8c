"""Tasks that need eyes: a window shows a picture of which the accessibility tree says nothing.

What is clicked or typed goes to a file by the guest's own window (`apis/guest/canvas.py`), and the verifier reads that.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING

from apis.actions.gui import Click, Exit, Type
from apis.applications import CANVAS
from apis.tasks.families import kind_of, worded, wordings
from apis.tasks.family import DOCUMENTS, Check, Family, Files, all_of, in_documents, rule
from apis.tasks.osworld import Evaluator, Step, data_url, launch, put
from apis.tasks.verify.verify import FileView, digest_of
from apis.tasks.view import Decide, Goal, Move, View
from apis.tasks.words import words

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

PICTURE, ANSWER = "picture.png", "answer.txt"  # of Documents
SIZE = 448, 252  # pixels, shown over the whole screen
WHOLE = 1000  # thousandths of a side, as all places here are
COLOURS = {
    "red": (208, 32, 32), "green": (24, 152, 40), "blue": (32, 64, 216), "yellow": (232, 200, 16),
    "black": (16, 16, 16), "purple": (144, 40, 168),
}  # fmt: skip
QUARTERS = ((250, 250), (750, 250), (250, 750), (750, 750))  # middles
BARS_AT, BAR_WIDTH, GROUND = (200, 400, 600, 800), 120, 940
_CLICKED = re.compile(r"Agent\.click\(coordinates=\[(\d+), (\d+)\]")
Points = Sequence[tuple[float, float]]
Box = tuple[int, int, int, int]  # left, top, right, bottom


def _round(spikes: int, turn: float = 0.0, inner: float = 1.0) -> Points:
    """Corners of a regular figure of radius 1 around (0, 0); between two of them one at `inner` where that is not 1."""
    count = spikes if inner == 1.0 else 2 * spikes
    radii = [1.0 if at % 2 == 0 or inner == 1.0 else inner for at in range(count)]
    angles = [turn + math.tau * at / count - math.tau / 4 for at in range(count)]
    return [(r * math.cos(a), r * math.sin(a)) for r, a in zip(radii, angles, strict=True)]


SHAPES: dict[str, Points] = {
    "circle": _round(48),
    "square": [(-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8)],
    "triangle": _round(3),
    "star": _round(5, inner=0.4),
    "cross": [(-0.3, -1), (0.3, -1), (0.3, -0.3), (1, -0.3), (1, 0.3), (0.3, 0.3), (0.3, 1), (-0.3, 1), (-0.3, 0.3),
              (-1, 0.3), (-1, -0.3), (-0.3, -0.3)],
}  # fmt: skip
ICONS: dict[str, Points] = {
    "house": [(-1, 0), (0, -1), (1, 0), (0.7, 0), (0.7, 1), (0.2, 1), (0.2, 0.4), (-0.2, 0.4), (-0.2, 1), (-0.7, 1),
              (-0.7, 0)],
    "arrow": [(-1, -0.3), (0.2, -0.3), (0.2, -0.8), (1, 0), (0.2, 0.8), (0.2, 0.3), (-1, 0.3)],
    "flag": [(-0.7, -1), (0.9, -0.5), (-0.5, 0), (-0.5, 1), (-0.7, 1)],
    "letter": [(-1, -0.7), (0, 0.1), (1, -0.7), (1, 0.7), (-1, 0.7)],
    "cup": [(-0.8, -0.6), (0.5, -0.6), (0.5, -0.4), (1, -0.4), (1, 0.2), (0.5, 0.2), (0.3, 0.8), (-0.6, 0.8)],
    "key": [(-1, -0.4), (-0.3, -0.4), (-0.3, -0.1), (1, -0.1), (1, 0.5), (0.8, 0.5), (0.8, 0.1), (0.5, 0.1),
            (0.5, 0.4), (0.3, 0.4), (0.3, 0.1), (-0.3, 0.1), (-0.3, 0.4), (-1, 0.4)],
}  # fmt: skip


@dataclass(frozen=True)
class Thing:
    """Something in the picture: a polygon of a colour, and the box that counts as a click on it."""

    corners: tuple[tuple[int, int], ...]
    colour: tuple[int, int, int]

    @property
    def box(self) -> Box:
        """Its bounds."""
        across, down = zip(*self.corners, strict=True)
        return min(across), min(down), max(across), max(down)


@dataclass(frozen=True)
class PictureGoal(Goal):
    """What is drawn; `wanted` is the place to click, or the word to type."""

    things: tuple[Thing, ...] = ()
    right: int = 0  # of them
    at: tuple[int, int] = (0, 0)  # where the oracle clicks; of a word its upper left corner


def _placed(figure: Points, at: tuple[int, int], radius: int, colour: tuple[int, int, int]) -> Thing:
    tall = radius * SIZE[0] / SIZE[1]  # a figure is as high as it is wide on the picture
    return Thing(tuple((round(at[0] + x * radius), round(at[1] + y * tall)) for x, y in figure), colour)


def _of_quarters(figures: dict[str, Points], name: str, asks: str) -> Callable[[Random, str], PictureGoal]:
    """Four figures in the quarters, of different colours and kinds; the one that is asked for by colour or figure."""

    def drawn(random: Random, split: str) -> PictureGoal:
        kind = kind_of(random, name)
        shapes, colours = random.sample(sorted(figures), 4), random.sample(sorted(COLOURS), 4)
        things = [
            _placed(figures[shape], at, random.randint(80, 110), COLOURS[colour])
            for shape, colour, at in zip(shapes, colours, QUARTERS, strict=True)
        ]
        right = random.randrange(4)
        values = {asks: colours[right] if asks == "colour" else shapes[right]}
        instruction = worded(random, name, kind, split, **values)
        return PictureGoal(kind, instruction, things=tuple(things), right=right, at=QUARTERS[right])

    return drawn


def _bars(random: Random, split: str) -> PictureGoal:
    kind = kind_of(random, "picture_bar")
    heights = [200 + 130 * step + random.randint(0, 60) for step in random.sample(range(5), 4)]
    colours = random.sample(sorted(COLOURS), 4)
    things = []
    for middle, height, colour in zip(BARS_AT, heights, colours, strict=True):
        left, right, top = middle - BAR_WIDTH // 2, middle + BAR_WIDTH // 2, GROUND - height
        things.append(Thing(((left, top), (right, top), (right, GROUND), (left, GROUND)), COLOURS[colour]))
    right = heights.index(max(heights) if kind == "highest" else min(heights))
    instruction = worded(random, "picture_bar", kind, split)
    return PictureGoal(kind, instruction, things=tuple(things), right=right, at=(BARS_AT[right], GROUND - 100))


def _name(random: Random, split: str) -> PictureGoal:
    """One figure, whose colour or kind is to be typed."""
    kind = kind_of(random, "picture_name")
    shape, colour = random.choice(sorted(SHAPES)), random.choice(sorted(COLOURS))
    at = random.randint(300, 700), random.randint(350, 650)
    thing = _placed(SHAPES[shape], at, random.randint(110, 170), COLOURS[colour])
    wanted = colour if kind == "colour" else shape
    return PictureGoal(kind, worded(random, "picture_name", kind, split), wanted=wanted, things=(thing,), at=at)


def _word(random: Random, split: str) -> PictureGoal:
    kind = kind_of(random, "picture_word")
    (word,) = words(random, split, 1)
    at = random.randint(60, 240), random.randint(200, 500)
    return PictureGoal(kind, worded(random, "picture_word", kind, split), wanted=word, at=at)


def _pixel(place: tuple[int, int]) -> tuple[int, int]:
    return place[0] * SIZE[0] // WHOLE, place[1] * SIZE[1] // WHOLE


@lru_cache(maxsize=256)
def picture(goal: PictureGoal) -> bytes:
    """The picture as PNG, the same bytes every time."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", SIZE, (255, 255, 255))
    _draw(ImageDraw.Draw(image), goal)
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def _draw(draw: ImageDraw, goal: PictureGoal) -> None:
    from PIL import ImageFont

    for thing in goal.things:
        draw.polygon([_pixel(corner) for corner in thing.corners], fill=thing.colour)
    if goal.wanted and not goal.things:
        draw.text(_pixel(goal.at), goal.wanted, fill=COLOURS["black"], font=ImageFont.load_default(48))


def _config(goal: PictureGoal) -> list[Step]:
    shown = f"{DOCUMENTS}/{PICTURE}"
    return [*put([(shown, data_url(picture(goal), "image/png"))]), launch(CANVAS, shown, f"{DOCUMENTS}/{ANSWER}")]


def _evaluator(goal: PictureGoal) -> Evaluator:
    answer: Check = ("file_text_is", ANSWER, rule(expected=f"{goal.wanted}\n"))
    if not goal.wanted:
        answer = ("clicked_in", ANSWER, rule(box=list(goal.things[goal.right].box)))
    same = ("file_bytes_are", PICTURE, rule(expected=digest_of(picture(goal))))
    return all_of(("folder_holds", "", rule(expected=sorted((ANSWER, PICTURE)))), same, answer)


def _solved(goal: PictureGoal) -> Files:
    answer = goal.wanted or f"{goal.at[0]} {goal.at[1]}"
    return in_documents({ANSWER: f"{answer}\n"}) | {f"Documents/{PICTURE}": FileView("file", picture(goal))}


def _click(view: View) -> Move:
    """Click the middle of what is asked for, then say so."""
    goal, screen = view.goal, view.observation.screen
    assert isinstance(goal, PictureGoal)
    if (last := _CLICKED.match(view.last_line())) is not None:
        left, top, right, bottom = goal.things[goal.right].box
        x, y = (int(pixels) * WHOLE // side for pixels, side in zip(last.groups(), screen, strict=True))
        if left <= x <= right and top <= y <= bottom:
            return "clicked -> done", Exit(success=True)
    x, y = (part * side // WHOLE for part, side in zip(goal.at, screen, strict=True))
    return "it is there -> click", Click(coordinates=(x, y))


def _type(view: View) -> Move:
    typed = Type(text=view.goal.wanted, enter=True)
    return ("typed -> done", Exit(success=True)) if view.did(typed) else (f"it says {view.goal.wanted}", typed)


def _family(name: str, goal: Callable[[Random, str], PictureGoal], decide: Decide) -> Family:
    return Family(
        name,
        (CANVAS,),
        goal,
        _config,
        _evaluator,
        _solved,
        {"gui": decide},
        wordings(name),
        values=lambda made: {made.wanted} - {"", *SHAPES, *COLOURS},
    )


FAMILIES = (
    _family("picture_colour", _of_quarters(SHAPES, "picture_colour", "colour"), _click),
    _family("picture_shape", _of_quarters(SHAPES, "picture_shape", "shape"), _click),
    _family("picture_bar", _bars, _click),
    _family("picture_icon", _of_quarters(ICONS, "picture_icon", "icon"), _click),
    _family("picture_name", _name, _type),
    _family("picture_word", _word, _type),
)
