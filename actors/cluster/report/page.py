"""The report as one HTML page.

Invariant: the page needs nothing but itself: no script, no address, every picture inside; each section is there
whatever the runs have, and says what is missing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from importlib import resources

from actors.cluster import criterion, say
from actors.cluster.report import evaluated, history, wordings
from actors.cluster.report.gather import Group, RunData
from actors.cluster.report.html import Markup, document, join, picture, table, tag
from actors.cluster.report.pagetime import time_of
from actors.cluster.report.pictures import Picture
from actors.cluster.report.played import episodes_of
from actors.replay.intervals import Gain, Rate

SECTIONS = (
    ("runs", "Runs"), ("success", "Success"), ("phases", "Phases"), ("learning", "Learning"), ("groups", "Groups"),
    ("time", "Time"), ("episodes", "Episodes"), ("reading", "How to read this"),
)  # fmt: skip
AROUND = 10  # RL steps on each side of a change of phase
PHASES = ("Phase", "From step", "Cause", "Evidence")
VARIETY = {  # figure -> heading of its change
    "entropy": "Token entropy", "sampled_entropy_nats": "Token entropy of all episodes",
    "action_entropy_nats": "Action entropy",
    "group_call_entropy_nats": "Call entropy in a group", "distinct_trajectories": "Distinct trajectories",
}  # fmt: skip
SUCCESS, GROUPS, TIME = {"curve"}, {"staleness", "groups"}, "seats"
READING = (
    "Success is the share of episodes that the verifier passed. Every rate names its decoding and its tasks; all points"
    " of one curve share both. Rates have Wilson's 95 % interval. Denominators: all episodes (a fault counts as a"
    " failure), those of feasible tasks, those without a fault.",
    "Curves, gains and differences leave out families that are never trained on, where there are others; in the table"
    " of a run's rounds All, Feasible, No fault and pass count every family.",
    "A gain is paired: the same instances before and after, with Newcombe's 95 % interval; it is real where the"
    " interval lies above 0. Several seeds are pooled with instances as clusters, so that interval speaks of these"
    " seeds and of other tasks like these, not of other seeds; the range of the seeds stands beside it. Where a seed"
    " repeats they are called runs: what lies between two runs of one seed says nothing of other seeds.",
    "A line with a band is the mean of the seeds with the lowest and the highest one, over the steps that all have.",
    "A group is the episodes of one task in one batch. Groups whose rewards are all equal (zero_variance) and groups"
    " that were too old (stale), broken (lost) or overtaken by a change of phase (phase_closed) teach nothing.",
    "A step is one batch; with learner.epochs above 1 it is that many optimizer steps. Entropy is in nats, at"
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
        "success": join(
            [_figures(drawn, SUCCESS), _gains(groups), _differences(groups), *(_rounds(run) for run in runs)]
        ),
        "phases": join(_phases(run) for run in runs),
        "learning": _learning(drawn),
        "groups": join([_figures(drawn, GROUPS), _endings(runs)]),
        "time": join(
            [_figures(drawn, {p.name for p in drawn if p.name.startswith(TIME)}), *(time_of(r) for r in runs)]
        ),
        "episodes": join(episodes_of(run) for run in runs),
        "reading": join(tag("p", words) for words in READING),
    }
    body = (tag("section", tag("h2", name), parts[key], id=key) for key, name in SECTIONS)
    style = (resources.files("actors.cluster.report") / "style.css").read_text(encoding="utf-8")
    return document(title, style, tag("main", tag("h1", title), places, *body))


def _runs(groups: Sequence[Group]) -> Markup:
    rows = []
    for group in groups:
        for run in group.runs:
            good = "good" if run.state == "ok" else "bad" if run.state in ("failed", "crashed", "killed") else None
            said = join([tag("span", run.state, class_=good), f" - {run.reason}" if run.reason else ""])
            steps = _counts(_by_phase(run)) or "none yet"
            seed = "" if run.seed is None else run.seed
            rows.append((run.name, group.label, seed, run.file, run.started, said, steps, _episodes(run)))
    head = ("Run", "Group", "Seed", "File", "Started", "State", "Steps", "Episodes")
    return table(head, rows)


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
            said = tag(
                "span", gain_said(together), class_="good" if together.low > 0 else "bad" if together.high < 0 else None
            )
            rows.append(
                (group.label, found.decoding, f"{found.before} to {found.after}", rate_said(together.before),
                 rate_said(together.after), said, criterion.instances(together), seeds)
            )  # fmt: skip
    if not rows:
        return tag("p", "No gain yet: it takes two evaluation rounds over the same instances.")
    head = ("Group", "Decoding", "Rounds", "First", "Last", "Paired gain (95 %)", "Instances", "Each")
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
         criterion.instances(one.together))
        for one in evaluated.differences(seeded)
    ]  # fmt: skip
    if not rows:
        return join([])
    head = ("Decoding", "Round", "Groups", "Seeds", "First one's", "Second one's", "Difference (95 %)", "Instances")
    return table(
        head, rows, "Differences between groups in the last round that all of them have played, paired by instance"
    )


def gain_said(found: Gain) -> str:
    """`+0.142 (0.061 to 0.223)`."""
    return f"{found.value:+.3f} ({found.low:+.3f} to {found.high:+.3f})"


def rate_said(found: Rate) -> str:
    """`0.750 (90/120), 0.666-0.819`."""
    low, high = found.interval
    return f"{found.value:.3f} ({found.successes}/{found.n}), {low:.3f}-{high:.3f}" if found.n else "-"


def _rounds(run: RunData) -> Markup:
    head = tag("h3", f"Rounds of {run.name}")
    if not run.rounds:
        return join([head, tag("p", "No evaluation round has been opened.")])
    rows, families = [], sorted({name for found in run.rounds for name in found.summary.families})
    for found in run.rounds:
        whole, summary = found.summary.whole, found.summary
        name = found.name if found.closed else f"{found.name} (going on)"
        rows.append(
            (name, found.version, found.decoding, rate_said(whole.all), _short(whole.feasible),
             _short(whole.without_faults), _short(summary.trained.all), _short(summary.untrained.all),
             ", ".join(f"@{k} {value:.3f}" for k, value in summary.pass_at.items()), found.task_set[:12])
        )  # fmt: skip
    titles = ("Round", "Weights", "Decoding", "All, 95 %", "Feasible", "No fault", "Trained families",
              "Never trained", "pass", "Task set")  # fmt: skip
    by_round = [found.summary.families for found in run.rounds]
    apart = table(
        ("Family", *(f"{found.name} ({found.decoding})" for found in run.rounds)),
        [
            (name, *(_short(rates[name].all) if name in rates else "-" for rates in by_round))
            for name in families
        ],
        "By family, all episodes",
    )  # fmt: skip
    return join([head, table(titles, rows), apart, *_wordings(run)])


def _wordings(run: RunData) -> list[Markup]:
    beside = wordings.alike(run.rounds)
    rows = wordings.by_wording(beside)
    if not rows:
        return []
    titles = ("Family", "Wording", *(f"{found.name} ({found.decoding})" for found in beside))
    shown = [
        (row.family, row.wording, *(f"{solved}/{played}" if played else "-" for solved, played in row.rounds))
        for row in rows
    ]
    return [table(titles, shown, "By wording, episodes without faults, what the last round missed most first")]


def _short(found: Rate) -> str:
    return f"{found.value:.3f} ({found.successes}/{found.n})" if found.n else "-"


def _phases(run: RunData) -> Markup:
    rows = [
        (switch.phase, switch.start, switch.cause,
         ", ".join(f"{name} {value:.4g}" for name, value in switch.evidence.items()) or "-",
         *(around(run, figure, at) for figure in VARIETY))
        for at, switch in enumerate(run.switches)
    ]  # fmt: skip
    said = (
        f"Variety: means over at most {AROUND} steps of RL before and after the change, of the nearest stay on either"
        " side; but for that of all episodes of the batches trained on, so without groups of equal rewards"
    )
    return join([tag("h3", run.name), table((*PHASES, *VARIETY.values()), rows, said), *_strata(run)])


def _strata(run: RunData) -> list[Markup]:
    """How many demonstrated tasks were always, sometimes or never solved, by family; nothing without strata."""
    kinds = list(dict.fromkeys(name.rpartition("/")[2] for name in run.strata))
    families = list(dict.fromkeys(name.rpartition("/")[0] for name in run.strata))
    if not kinds:
        return []
    rows = [(family, *(run.strata.get(f"{family}/{kind}", 0) for kind in kinds)) for family in families]
    return [table(("Family", *kinds), rows, "Demonstrated tasks by how often they were solved")]


def around(run: RunData, figure: str, at: int) -> str:
    """The figure's mean over the last RL steps before the change of phase number `at`, and over the first after it.

    Of the nearest stay with RL steps on either side alone: what lies behind another change is another one's doing.
    """
    stays = _stays(run, figure)
    before = next((stay[-AROUND:] for stay in reversed(stays[:at]) if stay), [])
    after = next((stay[:AROUND] for stay in stays[at:] if stay), [])
    return f"{sum(before) / len(before):.3f} -> {sum(after) / len(after):.3f}" if before and after else "-"


def _stays(run: RunData, figure: str) -> list[list[float]]:
    """The figure's values in RL by stay.

    A change of phase may leave the step under way to be made after it: such a step is of the last stay in RL.
    """
    starts, stays = [switch.start for switch in run.switches], [list[float]() for _ in run.switches]
    for step, value in sorted(history.series(run.steps, figure, "rl").items()):
        place = bisect_left(starts, step) - 1
        of_rl = (earlier for earlier in range(place, -1, -1) if run.switches[earlier].phase == "rl")
        stays[next(of_rl, place)].append(value)
    return stays


def _learning(drawn: Sequence[Picture]) -> Markup:
    rest = {one.name for one in drawn if one.name not in SUCCESS | GROUPS and not one.name.startswith(TIME)}
    if not rest:
        return tag("p", "No optimizer step has been made.")
    return tag("div", _figures(drawn, rest), class_="pair")


def _endings(runs: Sequence[RunData]) -> Markup:
    rows = [(run.name, _counts(run.figures.endings) or "no group yet") for run in runs]
    return table(("Run", "Groups"), rows)


def _figures(drawn: Sequence[Picture], names: set[str]) -> Markup:
    return join(
        tag(
            "figure",
            tag("h3", one.title),
            picture(one.content, f"{one.title}: {one.said}"),
            tag("figcaption", one.said),
        )
        for one in drawn
        if one.name in names
    )


def _counts(found: dict[str, int]) -> str:
    return say.clean(", ".join(f"{name} {count}" for name, count in sorted(found.items())))
