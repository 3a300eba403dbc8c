"""The page's whole episodes: what the model saw and said, what the desktop did, what the verifier found.

Invariant: every word of the guest and of the model is text on the page.
"""

from __future__ import annotations

from actors.cluster.report.episodes import EpisodeView, ShownStep
from actors.cluster.report.gather import RunData
from actors.cluster.report.html import Markup, join, picture, table, tag


def episodes_of(run: RunData) -> Markup:
    """One success and one failure per family, where they are stored."""
    head = tag("h3", run.name)
    if not run.episodes:
        return join([head, tag("p", *_none(run))])
    rows = [(one.family, one.task, _verdict(one), len(one.steps), one.where) for one in run.episodes]
    whole = (_episode(one, run.details.get(one.token, "")) for one in run.episodes)
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
    return tag("span", f"{word} ({episode.reason})", class_="good" if episode.success else "bad")


def _episode(episode: EpisodeView, detail: str) -> Markup:
    verdict = join([_verdict(episode), f": {detail}" if detail else ""])
    steps = (_step(number, step, episode) for number, step in enumerate(episode.steps, 1))
    return tag("article", tag("h4", f"{episode.task} ({episode.lane}, {episode.where})"), tag("p", verdict), *steps)


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
