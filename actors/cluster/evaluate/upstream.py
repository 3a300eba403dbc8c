"""An evaluation in the layout of OSWorld's own results, for the scripts that read those.

Invariant: an episode that ended by a fault has no result, as in OSWorld. What a desktop or a model wrote is data in
JSON. A picture is copied as it is stored and never decoded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster.config.schema import Deploy
from actors.cluster.report.episodes import EpisodeView, ShownStep, read
from actors.cluster.runs import ledgers
from actors.cluster.runs.evaluation_rounds import EvaluationRound
from actors.replay.database import queries
from actors.replay.statistics.scores import by_end_state
from apis.actions.gui import LITERALS, AnyAction, line
from apis.prompts import Observed
from apis.tasks import registry as tasks

OBSERVATION: Mapping[Observed, str] = {"tree": "a11y_tree", "picture": "screenshot", "both": "screenshot_a11y_tree"}
_NO_NAME = re.compile(r"[^\w.-]+|^\.+", re.ASCII)


def place(out: Path, deploy: Deploy, model: str, number: int = 1) -> Path:
    """Where the results of `model` go below `out`; those of a task's later episodes stand beside it."""
    name = _NO_NAME.sub("_", model) + (f"-{number}" if number > 1 else "")
    return out / deploy.prompt.action_space / OBSERVATION[deploy.prompt.observation] / name


def write(out: Path, run: Path, deploy: Deploy, model: str, found: EvaluationRound) -> int:
    """Write the round `found` of the run at `run` below `out`: how many results there are."""
    wanted = {episode.token: episode for episode in found.episodes if not episode.fault}
    seen: Counter[str] = Counter()
    with ledgers.opened(run) as db:
        rows = {row["token"]: row for row in queries.episodes(db) if row["token"] in wanted}
        for token in sorted(wanted):
            episode = wanted[token]
            seen[episode.task] += 1
            top = place(out, deploy, model, seen[episode.task])
            folder = top.joinpath(*task_place(episode.task))
            folder.mkdir(parents=True, exist_ok=True)
            if not (top / "args.json").is_file():
                (top / "args.json").write_bytes(msgspec.json.format(msgspec.json.encode(_arguments(deploy, model))))
            (folder / "result.txt").write_text(f"{by_end_state(episode)}\n")
            played = read(run, db, rows[token])
            _write_steps(folder, played)
    return len(wanted)


def task_place(task: str) -> tuple[str, str]:
    """Domain and id: of SET/DOMAIN/ID its own, of FAMILY/SPLIT/NUMBER the family and the rest."""
    first, middle, last = task.split("/")
    return (middle, last) if tasks.of_set(task) else (first, f"{middle}-{last}")


def _write_steps(folder: Path, played: EpisodeView | None) -> None:
    """`traj.jsonl` and its pictures; none where the steps are kept no longer."""
    if played is None:
        return
    lines = []
    for number, step in enumerate(played.steps, 1):
        picture = f"step_{number}.jpg" if number in played.pictures else ""
        if picture:
            (folder / picture).write_bytes(played.pictures[number])
        lines.append(msgspec.json.encode(_step(number, step, picture)) + b"\n")
    (folder / "traj.jsonl").write_bytes(b"".join(lines))


def _step(number: int, step: ShownStep, picture: str) -> dict[str, Any]:
    action = _action(step)
    return {
        "step_num": number,
        "action": action,
        "response": step.response,
        "reward": 0,
        "done": action in ("DONE", "FAIL"),
        "info": {"result": step.result, "refused": step.refusal},
        "screenshot_file": picture,
    }


def _action(step: ShownStep) -> str:
    if step.action is None:
        return ""
    action = msgspec.json.decode(step.action, type=AnyAction)
    word = next((word for word, meant in LITERALS.items() if meant == action), "")  # as OSWorld calls it
    return word or line(action)


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
