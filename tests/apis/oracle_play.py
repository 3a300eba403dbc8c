"""Plays oracle episodes on real desktops, without actors: for tests, and by hand to measure the oracles.

By hand: `python tests/apis/oracle_play.py --episodes 30 --out demos.jsonl` (as root; see --help).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from actors.desktop.body import view_of
from actors.desktop.config import SandboxConfig
from actors.desktop.link import GuestLink
from actors.desktop.providers.abc import Desktop, DesktopSpec, Provider
from actors.desktop.providers.outside import ReadLimits
from actors.desktop.providers.sandbox.provider import SandboxProvider
from apis import execute, grammar, tasks
from apis.actions import line
from apis.forms import Turn, element_names, render_compact, window_names
from apis.observation import Observation, from_guest
from apis.tasks.verify import verify, wanted

MAX_STEPS = 15
CALL_S = 20.0
Answers = Callable[[Observation, list[Turn]], str]


@dataclass
class Play:
    """One episode."""

    task: str
    success: bool = False
    reason: str = ""
    steps: list[dict[str, Any]] = field(default_factory=list)
    wall_s: float = 0.0
    cpu_s: float = 0.0


@asynccontextmanager
async def provider(state_dir: str) -> AsyncIterator[Provider]:
    """A sandbox provider that leaves nothing behind."""
    made = await SandboxProvider.start(SandboxConfig(state_dir=state_dir), run_id="oracles")
    try:
        yield made
    finally:
        await made.close()


async def play(made: Provider, task_id: str, answers: Answers, form: str = "compact") -> Play:
    """Boot a desktop, let `answers` act on it until it exits or runs out of steps, freeze and verify."""
    played, began = Play(task_id), time.monotonic()
    desktop = await made.boot(DesktopSpec())
    try:
        link = await GuestLink.open(desktop, timeout_s=CALL_S)
        try:
            claimed = await _turns(played, link, desktop, answers, form)
        finally:
            await link.close()
        await made.freeze(desktop)
        task = tasks.task(task_id)
        seen = {file.path: view_of(file) for file in await made.read_home(desktop, wanted(task), ReadLimits())}
        verdict = verify(task, lambda path: seen[path])
        played.success, played.reason = claimed and verdict.success, verdict.reason
        played.cpu_s = (await made.probe(desktop)).cpu_s
    finally:
        await made.destroy(desktop)
    played.wall_s = time.monotonic() - began
    return played


async def _turns(played: Play, link: GuestLink, desktop: Desktop, answers: Answers, form: str) -> bool:
    """Whether the episode ended with a claim of success."""
    task = tasks.task(played.task)
    await _carry_out(link, execute.setup(task, desktop.home))
    history: list[Turn] = []
    last: str | None = None
    for _ in range(MAX_STEPS):
        observation = from_guest(msgspec.to_builtins(await link.call("observe", timeout_s=CALL_S)))
        prompt = render_compact(task.instruction, history, observation, last)
        answer = answers(observation, history)
        played.steps.append({"prompt": prompt, "answer": answer})
        action = grammar.parse(answer, observation.app, element_names(observation), window_names(observation), form)
        if isinstance(action, grammar.Refusal):
            last = action.reason
            history.append(Turn(answer, None, last))
            continue
        plan = execute.plan(action, observation)
        await _carry_out(link, plan.calls)
        if plan.ends is not None:
            return plan.ends
        last = plan.result
        history.append(Turn(answer, line(action), last))
    return False


async def _carry_out(link: GuestLink, calls: Any) -> None:
    for call in calls:
        await link.call(call.method, timeout_s=CALL_S, **call.args)


async def check(
    ids: list[str], noise: float, seats: int, state_dir: str, out: Path | None, route: str = ""
) -> list[Play]:
    """Oracle episodes over `ids`, `seats` at a time; faults are raised."""
    gate = asyncio.Semaphore(seats)
    plays: list[Play] = []
    async with provider(state_dir) as made:

        async def one(number: int, task_id: str) -> None:
            async with gate:
                oracle = tasks.oracle(task_id, seed=number, noise=noise if number % 3 == 0 else 0.0, route=route)
                played = await play(made, task_id, oracle.answer)
                plays.append(played)
                if out is not None and played.success:
                    family, split, _ = task_id.split("/")
                    rows = [
                        {**step, "family": family, "split": split, "task": task_id, "step": n}
                        for n, step in enumerate(played.steps)
                    ]
                    with out.open("a") as file:
                        file.writelines(json.dumps(row) + "\n" for row in rows)

        async with asyncio.TaskGroup() as group:
            for number, task_id in enumerate(ids):
                group.create_task(one(number, task_id))
    return plays


def main() -> int:
    """Play, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", help="names (default: all)")
    parser.add_argument("--route", default="")
    parser.add_argument("--episodes", type=int, default=30, help="per family")
    parser.add_argument("--split", default="train")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--noise", type=float, default=0.0, help="share of stray steps in every third episode")
    parser.add_argument("--seats", type=int, default=2)
    parser.add_argument("--out", type=Path, help="append the steps of successes as JSON lines")
    args = parser.parse_args()
    families = args.families or list(tasks.FAMILIES)
    numbers = range(args.first, args.first + args.episodes)
    ids = [f"{family}/{args.split}/{number}" for number in numbers for family in families]
    with tempfile.TemporaryDirectory(prefix="crl", dir="/run") as state_dir:
        Path(state_dir).chmod(0o755)  # desktops have users of their own
        plays = asyncio.run(check(ids, args.noise, args.seats, state_dir, args.out, args.route))
    for family in families:
        mine = [play for play in plays if play.task.startswith(family + "/")]
        lengths = sorted(len(step["prompt"]) for play in mine for step in play.steps)
        figures = {
            "family": family,
            "episodes": len(mine),
            "solved": sum(play.success for play in mine),
            "steps": statistics.mean(len(play.steps) for play in mine),
            "wall_s": statistics.median(play.wall_s for play in mine),
            "cpu_s": statistics.median(play.cpu_s for play in mine),
            "prompt_chars": [lengths[0], int(statistics.median(lengths)), lengths[-1]],
        }
        sys.stdout.write(json.dumps(figures) + "\n")
        for play in mine:
            if not play.success:
                sys.stdout.write(json.dumps(asdict(play)) + "\n")
    return 0 if all(play.success for play in plays) else 1


if __name__ == "__main__":
    raise SystemExit(main())
