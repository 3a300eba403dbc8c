"""The report as one HTML page.

Invariant: the page needs nothing but itself: no script, no address, every picture inside. Each section is there
whatever the runs have, and says what is missing. Every word of a guest and of the model is text on the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import resources

from actors.cluster import output
from actors.cluster.report import evaluated
from actors.cluster.report.drawing import inlined
from actors.cluster.report.episodes import EpisodeView, ShownStep
from actors.cluster.report.gather import Group, RunData
from actors.cluster.report.headline import gain_said, gain_shown, headline, state
from actors.cluster.report.html import Markup, folded, join, picture, sealed, table, tag
from actors.cluster.report.pagephases import phases_of
from actors.cluster.report.pagerounds import rate_said, rounds_of
from actors.cluster.report.pagetime import time_of
from actors.cluster.report.pictures import Picture
from actors.cluster.runs import criterion
from actors.cluster.words import plain, plainly
from actors.replay.database import queries

SECTIONS = (
    ("runs", "Runs"), ("success", "Success"), ("phases", "Phases"), ("learning", "Learning"), ("groups", "Groups"),
    ("time", "Time"), ("episodes", "Episodes"), ("reading", "How to read this"),
)  # fmt: skip
SUCCESS, GROUPS, TIME = {"curve"}, {"staleness", "groups"}, "seats"
READING = (
    "Success is the share of episodes that the verifier passed. Every rate names its decoding and its tasks; all points"
    " of one curve share both. Rates have Wilson's 95 % interval. Denominators: all episodes (a fault counts as a"
    " failure), those of feasible tasks, those without a fault.",
    "Curves, gains and differences leave out families that are never trained on, where there are others; in the table"
    " of a run's rounds All, Feasible, No fault and pass count every family.",
    "A round is of the weights made by the step that it names. Where a resume from a checkpoint began a new lineage,"
    " they are named lineage.step, which is no decimal: 0.900 is step 900 of the first lineage, and 0.1118 came 218"
    " steps later.",
    "A gain is paired: the same instances before and after, with Newcombe's 95 % interval; it is real where the"
    " interval lies above 0. Several seeds are pooled with instances as clusters, so that interval speaks of these"
    " seeds and of other tasks like these, not of other seeds; the range of the seeds stands beside it. Where a seed"
    " repeats they are called runs: what lies between two runs of one seed says nothing of other seeds.",
    "A line with a band is the mean of the seeds with the lowest and the highest one, over the steps that all have.",
    "A group is the episodes of one task in one batch. Groups whose rewards are all equal and groups that"
    " were too old, lost to faults or overtaken by a change of phase teach nothing.",
    "A step is one batch; with learner.rl.epochs above 1 it is that many optimizer steps. Entropy is in nats, at"
    " temperature 1, but as sampled (over the answers of all training episodes) at the temperature they were drawn at.",
    "Mismatch compares the policy that is trained with the one that acted; on the"
    " newest weights it measures nothing but arithmetic, on older ones staleness too.",
)


def page(groups: Sequence[Group], drawn: Sequence[Picture]) -> str:
    """The page of `groups` with the pictures `drawn` of them."""
    runs = [run for group in groups for run in group.runs]
    title = f"ComputerRL: {runs[0].name}" if len(runs) == 1 else f"ComputerRL: {len(runs)} runs"
    places = tag("nav", *(tag("a", name, href=f"#{key}") for key, name in SECTIONS))
    parts = {
        "runs": _runs(groups),
        "success": join([_figures(drawn, SUCCESS), _gains(groups), _differences(groups), *_each(runs, rounds_of)]),
        "phases": join(_each(runs, phases_of)),
        "learning": _learning(drawn, max((len(run.steps) for run in runs), default=0)),
        "groups": join([_figures(drawn, GROUPS), _endings(runs)]),
        "time": join([_figures(drawn, {p.name for p in drawn if p.name.startswith(TIME)}), *_each(runs, time_of)]),
        "episodes": join(_each(runs, episodes_of)),
        "reading": join(tag("p", words) for words in READING),
    }
    body = (tag("section", tag("h2", name), parts[key], id=key) for key, name in SECTIONS)
    return styled(title, join([headline(groups), places, *body]))


def _each(runs: Sequence[RunData], of: Callable[[RunData], Markup]) -> Iterable[Markup]:
    """What `of` says of every run; of several it is folded."""
    return (of(run) if len(runs) == 1 else folded(run.name, of(run)) for run in runs)


def styled(title: str, body: Markup) -> str:
    """A page that looks like a report."""
    style = "".join(map(style_sheet, ("colours.css", "style.css")))
    return sealed(title, style, tag("main", tag("h1", title), body))


def style_sheet(name: str) -> str:
    """One of this package's."""
    return (resources.files("actors.cluster.report") / name).read_text(encoding="utf-8")


def _runs(groups: Sequence[Group]) -> Markup:
    rows = []
    for group in groups:
        for run in group.runs:
            said = join([state(run), f" - {run.reason}" if run.reason else ""])
            steps = _counts(_by_phase(run)) or "none yet"
            seen = queries.versions_text(run.figures.observations)
            seed = "" if run.seed is None else run.seed
            rows.append((run.name, group.label, seed, run.file, run.started, said, steps, _episodes(run), seen))
    head = ("Run", "Group", "Seed", "File", "Started", "State", "Steps", "Episodes", "Observation")
    return table(head, rows, words={"State"})


def _by_phase(run: RunData) -> dict[str, int]:
    found: dict[str, int] = {}
    for step in run.steps:
        found[step.phase] = found.get(step.phase, 0) + 1
    return found


def _episodes(run: RunData) -> str:
    return _counts(run.figures.episodes) or "none yet"


def _gains(groups: Sequence[Group]) -> Markup:
    rows = []
    for group in groups:
        for found in evaluated.gains(group.runs):
            together, each = found.together, [one.value for one in found.each]
            seeds = f"{len(each)} {group.called}: {', '.join(f'{value:+.3f}' for value in each)}" * (len(each) > 1)
            said = gain_shown(together)
            rows.append(
                (group.label, found.decoding, f"{found.before} to {found.after}", rate_said(together.before),
                 rate_said(together.after), said, criterion.instances(together),
                 criterion.spread(together, group.called), seeds)
            )  # fmt: skip
    if not rows:
        return tag("p", "No gain yet: it takes two evaluation rounds over the same instances.")
    head = (
        "Group",
        "Decoding",
        "Rounds",
        "First",
        "Last",
        "Paired gain (95 %)",
        "Instances",
        "Standard errors in points",
        "Each",
    )
    return table(
        head,
        rows,
        "Gain from the first to the last round that all of a group's runs have played, over the same instances",
    )


def _differences(groups: Sequence[Group]) -> Markup:
    seeded = {group.label: [(run.seed, run) for run in group.runs if run.seed is not None] for group in groups}
    rows = [
        (one.decoding, one.round, f"{one.more} - {one.less}", ", ".join(map(str, one.seeds)),
         rate_said(one.together.after), rate_said(one.together.before), gain_said(one.together),
         criterion.instances(one.together), criterion.spread(one.together) or "one seed: how seeds vary is not in it")
        for one in evaluated.differences(seeded)
    ]  # fmt: skip
    if not rows:
        return join([])
    head = (
        "Decoding", "Round", "Groups", "Seeds", "First one's", "Second one's", "Difference (95 %)", "Instances",
        "Standard errors in points",
    )  # fmt: skip
    return table(
        head, rows, "Differences between groups in the last round that all of them have played, paired by instance"
    )


def _learning(drawn: Sequence[Picture], steps: int) -> Markup:
    rest = {one.name for one in drawn if one.name not in SUCCESS | GROUPS and not one.name.startswith(TIME)}
    if not rest:
        none = "One optimizer step was made: a curve takes two." if steps else "No optimizer step has been made."
        return tag("p", none)
    said = "A click on a picture makes it as wide as the page; a click on its heading puts it back."
    return join([tag("p", said), tag("div", *(_enlarged(one) for one in drawn if one.name in rest), class_="pair")])


def _enlarged(one: Picture) -> Markup:
    """A figure that a link to itself makes wide: the style does so to the one that the address ends in."""
    place = f"picture-{one.name}"  # a section may have the picture's own name
    shown = tag("a", inlined(one.content.svg, one.name, f"{one.title}: {one.said}"), href=f"#{place}")
    head = tag("h3", tag("a", one.title, href="#learning"))
    return tag("figure", head, shown, tag("figcaption", one.said), id=place)


def _endings(runs: Sequence[RunData]) -> Markup:
    rows = [(run.name, _counts(plainly(run.figures.endings)) or "no group yet") for run in runs]
    return table(("Run", "Groups"), rows, words={"Groups"})


def _figures(drawn: Sequence[Picture], names: set[str]) -> Markup:
    return join(
        tag(
            "figure",
            tag("h3", one.title),
            inlined(one.content.svg, one.name, f"{one.title}: {one.said}"),
            tag("figcaption", one.said),
        )
        for one in drawn
        if one.name in names
    )


def _counts(found: dict[str, int]) -> str:
    return output.clean(", ".join(f"{name} {count}" for name, count in sorted(found.items())))


def episodes_of(run: RunData) -> Markup:
    """One success and one failure per family, where they are stored."""
    head = tag("h3", run.name)
    if not run.episodes:
        return join([head, tag("p", *_none(run))])
    rows = [(one.family, one.task, _verdict(one), len(one.steps), one.where) for one in run.episodes]
    whole = (
        folded(f"{one.task}: {'success' if one.success else 'failure'}, step by step",
               episode_of(one, run.details.get(one.token, ""), "h4"))
        for one in run.episodes
    )  # fmt: skip
    return join(
        [head, table(("Family", "Task", "Verdict", "Steps", "Played in"), rows, words={"Task", "Verdict"}), *whole]
    )


def _none(run: RunData) -> list[object]:
    """Where to look for episodes."""
    if not sum(run.figures.episodes.values()):
        return ["No episode has been played yet."]
    command = tag("code", f"computerrl report {run.name}")
    return [
        "No whole episode is stored here: a file of figures holds none, and a run's folder those that it has kept. ",
        "On the machine that holds the run's own folder, ", command, " shows them.",
    ]  # fmt: skip


def _verdict(episode: EpisodeView) -> Markup:
    word = "success" if episode.success else "failure"
    return tag("span", f"{word} ({plain(episode.reason)})", class_="good" if episode.success else "bad")


def episode_of(episode: EpisodeView, detail: str, heading: str = "h2") -> Markup:
    """A whole episode, step by step; `detail` is what the verifier saw, `heading` the level below what is around it."""
    verdict = join([_verdict(episode), f": {detail}" if detail else ""])
    steps = (_step(number, step, episode) for number, step in enumerate(episode.steps, 1))
    return tag("article", tag(heading, f"{episode.task} ({episode.lane}, {episode.where})"), tag("p", verdict), *steps)


def _step(number: int, step: ShownStep, episode: EpisodeView) -> Markup:
    parts = [tag("strong", f"step {number}"), tag("pre", step.observation), tag("pre", step.response, class_="answer")]
    if step.refusal is not None:
        parts.append(tag("pre", f"refused: {step.refusal}", class_="refused"))
    else:
        parts.append(tag("pre", f"action: {step.action}\nresult: {step.result}"))
    if number in episode.pictures:
        parts.append(
            tag("figure", picture(episode.pictures[number], f"The desktop of {episode.task} at step {number}"))
        )
    return tag("div", *parts, class_="step")
