"""What `eval` prints and writes.

Invariant: a rate never stands without its interval, its decoding and its task-set hash.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from actors.cluster import output
from actors.cluster.config import deploy_files
from actors.cluster.config.schema import Deploy
from actors.cluster.evaluate import upstream
from actors.cluster.runs import criterion, evaluation_rounds
from actors.cluster.runs.evaluation_rounds import Compared, EvaluationRound
from actors.cluster.runs.weights import NamedWeights
from actors.replay.statistics.intervals import Rate
from actors.replay.statistics.scores import side_by_side
from actors.replay.statistics.success_rates import Rates, Summary
from apis.tasks import registry as tasks
from runtime.errors import ConfigError


class Outs(NamedTuple):
    """Folders to write to, where they are wanted."""

    own: Path | None  # result.json and episodes.jsonl
    osworld: Path | None


def result(
    folder: Path, weights: NamedWeights, deploy: Deploy, before: Path | None, outs: Outs, *, as_json: bool
) -> None:
    """Print the round of the run at `folder`, write it into `outs`, and compare it with its like in the run `before`.

    Raises ConfigError for what can't be compared.
    """
    rounds = evaluation_rounds.read_rounds(folder)
    if not rounds:
        return
    (found,) = rounds
    compared = None
    if before is not None and found.closed:
        compared = evaluation_rounds.compare(like(deploy, before), found)
        compared = msgspec.structs.replace(compared, before=before.name, after=folder.name)
    document = _document(folder, weights, deploy, found, compared)
    if (out := outs.own) is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "result.json").write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")
        lines = b"".join(msgspec.json.encode(episode) + b"\n" for episode in found.episodes)
        (out / "episodes.jsonl").write_bytes(lines)
    if as_json:
        output.document(document)
    else:
        _print(weights, deploy, found, compared)
    if outs.osworld is not None:
        model = deploy.model.endpoint.model if deploy.model.endpoint else weights.name
        count = upstream.write(outs.osworld, folder, deploy, model, found)
        where = upstream.place(outs.osworld, deploy, model)
        output.line(f"wrote {count} results in OSWorld's layout: {where}", to=sys.stderr if as_json else None)
    if out is not None and not as_json:
        output.line(f"wrote {out / 'result.json'} and {out / 'episodes.jsonl'}")


def like(deploy: Deploy, run: Path) -> EvaluationRound:
    """The newest closed round of `run` over the very instances and decoding of `deploy`.

    Raises ConfigError, also where `run` gave its agent other actions, another form of prompts or other room for steps.
    """
    before = deploy_files.stored(run)
    for key, then, now in (
        ("tasks.max_turns", before.tasks.max_turns, deploy.tasks.max_turns),
        ("prompt.format", before.prompt.format, deploy.prompt.format),
        ("prompt.action_space", before.prompt.action_space, deploy.prompt.action_space),
        ("prompt.observation", before.prompt.observation, deploy.prompt.observation),
        ("prompt.coordinates", before.prompt.sight.unit, deploy.prompt.sight.unit),
        ("prompt.template", before.prompt.template.digest or "none", deploy.prompt.template.digest or "none"),
        ("desktops.screen", before.desktops.screen, deploy.desktops.screen),
    ):
        if then != now:
            raise ConfigError(f"--against: {run.name} played with {key} {then}, this evaluation with {now}")
    wanted = (tasks.digest(str(task) for task in deploy.tasks.eval), deploy.sampling.eval_temperature)
    for one in reversed(evaluation_rounds.read_rounds(run)):
        if one.closed and (one.task_set, one.temperature, one.max_new_tokens) == (
            *wanted,
            deploy.sampling.max_new_tokens,
        ):
            return one
    raise ConfigError(
        f"--against: {run.name} has no closed round over task set {wanted[0]} at temperature {wanted[1]:g}"
    )


def _document(
    folder: Path, weights: NamedWeights, deploy: Deploy, found: EvaluationRound, compared: Compared | None
) -> dict[str, Any]:
    return {
        "run": str(folder),
        "weights": weights,
        "decoding": found.decoding,
        "temperature": found.temperature,
        "max_new_tokens": found.max_new_tokens,
        "task_set": found.task_set,
        "format": deploy.prompt.format,
        "action_space": deploy.prompt.action_space,
        "observation": deploy.prompt.observation,
        "coordinates": deploy.prompt.sight.unit,
        "template": deploy.prompt.template.digest,
        "max_turns": deploy.tasks.max_turns,
        "screen": deploy.desktops.screen,
        "closed": found.closed,
        "intervals": _intervals(found.summary),
        "summary": found.summary,
        "scores": side_by_side(found.episodes),
        "gain": compared,
    }


def _intervals(summary: Summary) -> dict[str, tuple[float, float, float]]:
    """Success of all episodes with its interval, of the whole and of its parts."""
    parts = {"whole": summary.whole, "trained": summary.trained, "untrained": summary.untrained} | summary.families
    return {name: (rates.all.value, *rates.all.interval) for name, rates in parts.items() if rates.all.n}


def _print(weights: NamedWeights, deploy: Deploy, found: EvaluationRound, compared: Compared | None) -> None:
    summary = found.summary
    at = f" at {weights.at} ({weights.version})" if weights.run else ""
    state = "" if found.closed else ", not finished"
    output.prose(
        f"\n{weights.name}{at}: {summary.instances} instances (task set {found.task_set}), {found.decoding},"
        f" form {deploy.prompt.format}, actions {deploy.prompt.action_space},"
        f" {summary.episodes} episodes, {summary.faults} faults{state}\n"
    )
    never = evaluation_rounds.untrained_families(summary.families, found.trained)
    rows = [
        _row(f"{name} (never trained)" if name in never else name, rates) for name, rates in summary.families.items()
    ]
    if summary.untrained.all.n and summary.trained.all.n:
        rows += [_row("ALL TRAINED", summary.trained), _row("ALL NEVER TRAINED", summary.untrained)]
    rows.append(_row("ALL", summary.whole))
    output.table(("FAMILY", "SUCCESS", "95 %", "FEASIBLE", "NO FAULT"), rows)
    if rows := found.score_rows:
        output.line("")
        output.table([title.upper() for title in evaluation_rounds.SCORES], rows)
    if len(summary.pass_at) > 1:
        output.line("\n" + "  ".join(f"pass@{k} {value:.3f}" for k, value in summary.pass_at.items()))
    if compared is not None:
        output.line(f"\n{criterion.told(compared)}")


def _row(name: str, rates: Rates) -> tuple[str, ...]:
    low, high = rates.all.interval
    return name, _share(rates.all), f"{low:.3f}-{high:.3f}", _share(rates.feasible), _share(rates.without_faults)


def _share(rate: Rate) -> str:
    return f"{rate.value:.3f} ({rate.successes}/{rate.n})" if rate.n else "-"
