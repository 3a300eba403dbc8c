"""What `eval` prints, and its results in OSWorld's own layout, for the scripts that read those."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster import output
from actors.cluster.config import deploy_files, suites
from actors.cluster.config.schema import Deploy
from actors.cluster.report.episodes import EpisodeView, ShownStep, read
from actors.cluster.report.page import share
from actors.cluster.runs import evaluation_rounds, ledgers
from actors.cluster.runs.evaluation_rounds import Compared, EvaluationRound
from actors.cluster.runs.weights import NamedWeights
from actors.desktop.link import is_jpeg
from actors.replay.database import queries
from actors.replay.statistics import Rates, by_end_state, side_by_side
from apis.actions.gui import LITERALS, AnyAction, line
from apis.prompts import Observed
from apis.tasks import registry as tasks
from runtime.errors import ConfigError

OBSERVATION: Mapping[Observed, str] = {"text": "a11y_tree", "picture": "screenshot", "both": "screenshot_a11y_tree"}
_NO_NAME = re.compile(r"[^\w.-]+|^\.+", re.ASCII)


def result(
    folder: Path, weights: NamedWeights, deploy: Deploy, before: Path | None, osworld: Path | None, *, as_json: bool
) -> None:
    """Print the round of the run at `folder`, and compare it with its like in the run `before`; write it to `osworld`.

    Raises ConfigError for what can't be compared.
    """
    rounds = evaluation_rounds.read_rounds(folder)
    if not rounds:
        return
    (played,) = rounds
    compared = None
    if before is not None and played.closed:
        compared = evaluation_rounds.compare(like(deploy, before), played)
        compared = msgspec.structs.replace(compared, before=before.name, after=folder.name)
    if as_json:
        output.document(_document(folder, weights, deploy, played, compared))
    else:
        _print(weights, deploy, played, compared)
    if osworld is not None:
        model = deploy.model.endpoint.model if deploy.model.endpoint else weights.name
        count = write_osworld(osworld, folder, deploy, model, played)
        where = osworld_place(osworld, deploy, model)
        output.line(f"wrote {count} results in OSWorld's layout: {where}", to=sys.stderr if as_json else None)


# What two evaluations have in common where they are compared: key, and its value.
_SHARED: dict[str, Callable[[Deploy], object]] = {
    "tasks.max_turns": lambda deploy: deploy.tasks.max_turns,
    "prompt.format": lambda deploy: deploy.prompt.format,
    "prompt.action_space": lambda deploy: deploy.prompt.action_space,
    "prompt.observation": lambda deploy: deploy.prompt.observation,
    "prompt.coordinates": lambda deploy: deploy.prompt.sight.unit,
    "prompt.template": lambda deploy: deploy.prompt.template.digest or "none",
    "desktops.screen": lambda deploy: deploy.desktops.screen,
}


def like(deploy: Deploy, run: Path) -> EvaluationRound:
    """The newest closed round of `run` over the very instances and decoding of `deploy`.

    Raises ConfigError, also where `run` gave its agent other actions, another form of prompts or other room for steps.
    """
    before = deploy_files.stored(run)
    for key, of in _SHARED.items():
        if of(before) != of(deploy):
            raise ConfigError(
                f"--against: {run.name} played with {key} {of(before)}, this evaluation with {of(deploy)}"
            )
    task_set, heat = tasks.digest(str(task) for task in deploy.tasks.eval), deploy.sampling.eval_temperature
    wanted = (task_set, heat, deploy.sampling.max_new_tokens)
    for played in reversed(evaluation_rounds.read_rounds(run)):
        if played.closed and (played.task_set, played.temperature, played.max_new_tokens) == wanted:
            return played
    raise ConfigError(f"--against: {run.name} has no closed round over task set {task_set} at temperature {heat:g}")


def _document(
    folder: Path, weights: NamedWeights, deploy: Deploy, played: EvaluationRound, compared: Compared | None
) -> dict[str, Any]:
    shared, summary = {key.rpartition(".")[2]: of(deploy) for key, of in _SHARED.items()}, played.summary
    parts = {"whole": summary.whole, "trained": summary.trained, "untrained": summary.untrained} | summary.families
    return {
        "run": str(folder),
        "weights": weights,
        "decoding": played.decoding,
        "temperature": played.temperature,
        "max_new_tokens": played.max_new_tokens,
        "task_set": played.task_set,
        **shared,
        "template": deploy.prompt.template.digest,
        "closed": played.closed,
        "remembered": played.remembered,
        "intervals": {name: (part.all.value, *part.all.interval) for name, part in parts.items() if part.all.n},
        "summary": summary,
        "scores": side_by_side(played.episodes),
        "gain": compared,
    }


def _print(weights: NamedWeights, deploy: Deploy, played: EvaluationRound, compared: Compared | None) -> None:
    summary = played.summary
    at = f" at {weights.at} ({weights.version})" if weights.run else ""
    state = "" if played.closed else ", not finished"
    state += f", {played.remembered:.0%} of the steps remembered" if played.remembered else ""
    output.prose(
        f"\n{weights.name}{at}: {summary.instances} instances (task set {played.task_set}), {played.decoding},"
        f" form {deploy.prompt.format}, actions {deploy.prompt.action_space},"
        f" {summary.episodes} episodes, {summary.faults} faults{state}\n"
    )
    never = suites.untrained_families(summary.families, played.trained)
    rows = [
        _row(f"{name} (never trained)" if name in never else name, rates) for name, rates in summary.families.items()
    ]
    if summary.untrained.all.n and summary.trained.all.n:
        rows += [_row("ALL TRAINED", summary.trained), _row("ALL NEVER TRAINED", summary.untrained)]
    rows.append(_row("ALL", summary.whole))
    output.table(("FAMILY", "SUCCESS", "95 %", "FEASIBLE", "NO FAULT"), rows)
    if rows := played.score_rows:
        output.line("")
        output.table([title.upper() for title in evaluation_rounds.SCORES], rows)
    if len(summary.pass_at) > 1:
        output.line("\n" + "  ".join(f"pass@{k} {value:.3f}" for k, value in summary.pass_at.items()))
    if compared is not None:
        output.line(f"\n{evaluation_rounds.gain_line(compared)}")


def _row(name: str, rates: Rates) -> tuple[str, ...]:
    low, high = rates.all.interval
    return name, share(rates.all), f"{low:.3f}-{high:.3f}", share(rates.feasible), share(rates.without_faults)


def osworld_place(out: Path, deploy: Deploy, model: str, number: int = 1) -> Path:
    """Where the results of `model` go below `out`; those of a task's later episodes are next to it."""
    name = _NO_NAME.sub("_", model) + (f"-{number}" if number > 1 else "")
    return out / deploy.prompt.action_space / OBSERVATION[deploy.prompt.observation] / name


def write_osworld(out: Path, run: Path, deploy: Deploy, model: str, played: EvaluationRound) -> int:
    """Write the round `played` of the run at `run` below `out`: how many results there are."""
    wanted = {episode.token: episode for episode in played.episodes if not episode.fault}
    seen: Counter[str] = Counter()
    with ledgers.opened(run) as db:
        rows = {row["token"]: row for row in queries.episodes(db) if row["token"] in wanted}
        for token in sorted(wanted):
            episode = wanted[token]
            seen[episode.task] += 1
            top = osworld_place(out, deploy, model, seen[episode.task])
            # Domain and id: of SET/DOMAIN/ID its own, of FAMILY/SPLIT/NUMBER the family and the rest.
            first, middle, last = episode.task.split("/")
            folder = top / middle / last if tasks.of_set(episode.task) else top / first / f"{middle}-{last}"
            folder.mkdir(parents=True, exist_ok=True)
            if not (top / "args.json").is_file():
                (top / "args.json").write_bytes(msgspec.json.format(msgspec.json.encode(_arguments(deploy, model))))
            (folder / "result.txt").write_text(f"{by_end_state(episode)}\n")
            _write_steps(folder, read(run, db, rows[token]))
    return len(wanted)


def _write_steps(folder: Path, played: EpisodeView | None) -> None:
    """`traj.jsonl` and its pictures; none where the steps are kept no longer."""
    if played is None:
        return
    lines = []
    for number, step in enumerate(played.steps, 1):
        picture = ""
        if content := played.pictures.get(number):
            picture = f"step_{number}.{'jpg' if is_jpeg(content) else 'png'}"
            (folder / picture).write_bytes(content)
        lines.append(msgspec.json.encode(_step(number, step, picture)) + b"\n")
    (folder / "traj.jsonl").write_bytes(b"".join(lines))


def _step(number: int, step: ShownStep, picture: str) -> dict[str, Any]:
    word = ""
    if step.action is not None:
        action = msgspec.json.decode(step.action, type=AnyAction)
        word = next((word for word, meant in LITERALS.items() if meant == action), "") or line(action)
    return {
        "step_num": number,
        "action": word,
        "response": step.response,
        "reward": 0,
        "done": word in ("DONE", "FAIL"),
        "info": {"result": step.result, "refused": step.refusal},
        "screenshot_file": picture,
    }


def _arguments(deploy: Deploy, model: str) -> dict[str, Any]:
    width, _, height = deploy.desktops.screen.partition("x")
    endpoint = deploy.model.endpoint
    return {
        "model": model,
        "action_space": deploy.prompt.action_space,
        "observation_type": OBSERVATION[deploy.prompt.observation],
        "screen_width": int(width),
        "screen_height": int(height),
        "max_steps": deploy.tasks.max_turns,
        "temperature": deploy.sampling.eval_temperature,
        "top_p": endpoint.top_p if endpoint else None,
        "max_tokens": deploy.sampling.max_new_tokens,
    }
