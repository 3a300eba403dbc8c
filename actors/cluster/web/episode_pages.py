"""The live page's episodes: a list with filters, and one after the other.

Invariant: what was filtered stays filtered from page to page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlencode

import msgspec

from actors.cluster.report import page as pages
from actors.cluster.report.html import Markup, join, table, tag
from actors.cluster.views import episodes
from actors.cluster.views.episodes import Wanted
from actors.cluster.words import plain
from runtime.errors import ConfigError

SHOWN = 100  # of a page
ENDINGS = ("success", "failure", episodes.FAULT)
BEFORE = "before"  # the token that a page of the list begins below


def wanted_of(query: Mapping[str, str]) -> Wanted:
    """What the fields of a page ask for."""
    return Wanted(**{name: query.get(name) or None for name in Wanted.__struct_fields__})


def listing(path: Path, query: Mapping[str, str]) -> Markup:
    """The filters, a page of the list, and the way to the older ones. Raises ConfigError."""
    wanted, before = wanted_of(query), query.get(BEFORE, "")
    if before and not (before.isascii() and before.isdecimal() and len(before) < 19):
        raise ConfigError(f"{BEFORE} {before!a}: no token")
    found = episodes.listed(path, wanted, SHOWN + 1, below=int(before) if before else None)
    shown, at = found[:SHOWN], f"/runs/{path.name}/episodes"
    rows = [
        (tag("a", one.trace, href=_address(f"{at}/{one.token}", wanted)) if one.stored else one.trace, one.task,
         one.where, f"{one.ending}, {plain(one.reason)}" if one.reason else one.ending,
         "" if one.steps is None else one.steps)
        for one in shown
    ]  # fmt: skip
    older = _address(at, wanted, **{BEFORE: str(shown[-1].token)}) if found[SHOWN:] else ""
    links = [tag("a", "Newest", href=_address(at, wanted))] if before else []
    links += [tag("a", "Older", href=older)] if older else []
    body = table(("Episode", "Task", "Played in", "Verdict", "Steps"), rows) if rows else tag("p", "None is of these.")
    return join([_filters(path, at, wanted), body, _nav(links)])


def one(path: Path, named: str, query: Mapping[str, str]) -> tuple[str, Markup]:
    """Name and page of an episode, with the ways to its neighbours in the list. Raises ConfigError."""
    line, episode, detail = episodes.found(path, named)
    wanted, at = wanted_of(query), f"/runs/{path.name}/episodes"
    newer, older = episodes.neighbours(path, line.token, wanted)
    ways = (("Newer", newer), ("Older", older))
    links = [tag("a", word, href=_address(f"{at}/{token}", wanted)) for word, token in ways if token is not None]
    links.append(tag("a", "List", href=_address(at, wanted)))
    return line.trace, join([_nav(links), pages.episode_of(episode, detail)])


def _nav(links: Sequence[Markup]) -> Markup:
    return tag("nav", *links, aria_label="Episodes") if links else Markup("")


def _filters(path: Path, at: str, wanted: Wanted) -> Markup:
    families, phases = episodes.known(path)
    fields = (("family", families, wanted.family), ("phase", phases, wanted.phase), ("ending", ENDINGS, wanted.ending))
    labels = [tag("label", f"{name} ", _select(name, options, given)) for name, options, given in fields]
    return tag("form", *labels, tag("button", "filter"), action=at)


def _select(name: str, options: Sequence[str], given: str | None) -> Markup:
    each = (tag("option", one, value=one, selected="" if one == given else None) for one in options)
    return tag("select", tag("option", "any", value=""), *each, name=name)


def _address(path: str, wanted: Wanted, **more: str) -> str:
    asked = {name: value for name, value in msgspec.structs.asdict(wanted).items() if value} | more
    return f"{path}?{urlencode(asked)}" if asked else path
