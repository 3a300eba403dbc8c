"""From a figure of matplotlib to a PNG for a file and an SVG for a page.

Invariant: the SVG has no address, no style sheet and no script, and its colours follow the page's scheme. Its ids begin
with the picture's name, so that no two pictures of a page share one.
"""

from __future__ import annotations

import io
import re
import sys
from typing import Any, NamedTuple

from actors.cluster.report.html import Markup, tag
from actors.replay.messages import Phase
from runtime.errors import ConfigError

INK, PAPER = "#1b1b1b", "#fefefe"  # of text and axes, and behind a legend
SHADES: dict[str, str] = {Phase.BC: "#dfe8f5", Phase.RL: "#e6f3e6", Phase.PULSE: "#fbeed5"}
LINES = (
    "#1f5f99", "#b5482a", "#2f7d46", "#7a4a9e", "#8a6d1f", "#3f7f86",
    "#c23b75", "#5b6b1a", "#4458c4", "#d0872c", "#5f5f5f", "#20a39e",
)  # fmt: skip
_ON_PAGE = (
    {INK: "currentColor", PAPER: "var(--paper)"}
    | {colour: f"var(--{phase},{colour})" for phase, colour in SHADES.items()}
    | {colour: f"var(--line-{number},{colour})" for number, colour in enumerate(LINES)}
)  # fmt: skip
_COLOUR = re.compile("|".join(_ON_PAGE))
_VIEW = re.compile(r'viewBox="([\d. ]+)"')
_NAMED = re.compile(r'(id="|url\(#|href="#)')


class Drawing(NamedTuple):
    """One picture."""

    png: bytes  # b"" for one that is on the page alone
    svg: str


def pyplot() -> Any:
    """Matplotlib's, drawing into memory. Raises ConfigError where it is missing."""
    try:
        import matplotlib
    except ImportError as error:
        mend = f"make setup, or {sys.executable} -m pip install matplotlib"
        raise ConfigError(f"drawing needs matplotlib: {mend}") from error
    matplotlib.use("Agg")
    matplotlib.rcParams.update({
        "text.color": INK, "axes.edgecolor": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
        "legend.facecolor": PAPER, "svg.fonttype": "none", "svg.hashsalt": "computerrl",
    })  # fmt: skip
    from matplotlib import pyplot as plt

    return plt


def drawn(figure: Any, *, file: bool = False) -> Drawing:
    """The picture, and nothing of it left in memory; with `file` as a PNG, too."""
    png, svg = io.BytesIO(), io.StringIO()
    figure.tight_layout()
    if file:
        figure.savefig(png, format="png", metadata={"Software": None})
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(svg, format="svg", transparent=True, metadata=nothing)
    pyplot().close(figure)
    return Drawing(png.getvalue(), svg.getvalue())


def inlined(svg: str, name: str, said: str) -> Markup:
    """The `svg` of a `Drawing` as an element of a page; `said` is what it shows, in words."""
    head, _, body = svg[svg.index("<svg") :].partition(">")
    view = _VIEW.search(head)
    assert view is not None
    body = body.rpartition("</svg>")[0].replace("xlink:href", "href")
    body = re.sub(r"<style.*?</style>", "", body, flags=re.DOTALL)
    body = _NAMED.sub(rf"\g<1>{name}-", _COLOUR.sub(lambda found: _ON_PAGE[found[0]], body))
    return tag("svg", Markup(body), viewBox=view[1], role="img", aria_label=said)
