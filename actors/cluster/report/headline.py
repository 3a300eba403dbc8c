"""The page's first box: what was run, what came of it, and what it looked like.

Invariant: it says nothing that the sections below do not say, and each gain stands with its interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from actors.cluster import output
from actors.cluster.report import evaluated
from actors.cluster.report.gather import Group, RunData
from actors.cluster.report.html import Markup, picture, tag
from actors.cluster.report.small import small
from actors.cluster.runs import criterion
from actors.replay.statistics import Gain

SHOTS = 2


def headline(groups: Sequence[Group]) -> Markup:
    """The box for all `groups`."""
    runs = [run for group in groups for run in group.runs]
    shots = tag("div", *_shots(runs), class_="shots")
    return tag("section", *(part for group in groups for part in _of(group)), shots, class_="headline",
               aria_label="Headline")  # fmt: skip


def state(run: RunData) -> Markup:
    """Its verdict, or what it does now."""
    good = "good" if run.state == "ok" else "bad" if run.state in ("failed", "crashed", "killed") else None
    return tag("span", run.state, class_=good)


def gain_said(found: Gain) -> str:
    """`+0.142 (0.061 to 0.223)`."""
    return f"{found.value:+.3f} ({found.low:+.3f} to {found.high:+.3f})"


def gain_shown(found: Gain) -> Markup:
    """The same, good or bad where the interval lies on one side of 0."""
    return tag("span", gain_said(found), class_="good" if found.low > 0 else "bad" if found.high < 0 else None)


def _of(group: Group) -> Iterator[Markup]:
    first = group.runs[0]
    seeds = f", {len(group.runs)} {group.called}" if len(group.runs) > 1 else ""
    steps, episodes = sum(len(run.steps) for run in group.runs), sum(_episodes(run) for run in group.runs)
    states = [part for run in group.runs for part in (" ", state(run))]
    yield tag("p", tag("strong", group.label), f" ({first.file}{seeds}):", *states,
              f", {steps} steps, {episodes} episodes")  # fmt: skip
    found = [one for one in evaluated.gains(group.runs) if one.together.instances]
    for one in found[:1]:
        rates = f"{one.together.before.value:.3f} to {one.together.after.value:.3f}"
        yield tag("p", f"held-out success {rates}: ", gain_shown(one.together), class_="gain")
        said = f"{one.before} to {one.after}, {criterion.instances(one.together)}, {one.decoding}; 95 % interval"
        yield tag("p", said)
    if not found:
        yield tag("p", "No gain yet: it takes two rounds over the same instances, not all of them lost to faults.")


def _episodes(run: RunData) -> int:
    return sum(run.figures.episodes.values())


def _shots(runs: Sequence[RunData]) -> Iterator[Markup]:
    """The last screenshots of a success and of a failure, where they are stored."""
    left = SHOTS
    shown: set[bool] = set()
    for one in (episode for run in runs for episode in run.episodes):
        if left and one.success not in shown and one.pictures:
            if (made := small(one.pictures[max(one.pictures)])) is None:
                continue
            shown.add(one.success)
            left -= 1
            said = f"{'Success' if one.success else 'Failure'}: {output.clean(one.task)}"
            yield tag("figure", picture(made, f"The desktop at the end. {said}"), tag("figcaption", said))
