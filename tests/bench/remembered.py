"""`make bench NAME=remembered`: whether real desktops show, answer and judge what a run's memo did.

Episodes of a run, drawn by a seed, are played again on real desktops, as `computerrl rerun` plays one. It needs root.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from pathlib import Path
from random import Random

import msgspec

from actors.cluster.checks.played import differences, played_again
from actors.cluster.config import deploy_files
from actors.cluster.runs import ledgers, run_folder
from actors.cluster.views.episodes import Wanted, listed, whole
from actors.replay.database import queries
from runtime.errors import ConfigError
from tests.bench.report import Measured, Target, show

AGREE, JUDGED_ALIKE = 0.99, 0.995
MOST = 1 << 20


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure."""

    run: str = "last"
    runs: str = "runs"
    episodes: int = 20
    which: str = "remembered"  # of these every step was remembered; or "all"
    seed: int = 0  # of the draw


class RememberedResult(Measured, frozen=True, kw_only=True):
    """How many of each came alike, of how many; by `rerun`'s names."""

    run: str
    alike: dict[str, int]
    of: dict[str, int]
    differ: dict[str, list[str]]  # episodes that came otherwise, and in what


def remembered(run: Path, token: int) -> bool:
    """Whether the memo gave all steps of the episode."""
    with ledgers.opened(run) as db:
        return all(step.remembered for step in queries.steps_of(db, token))


def chosen(run: Path, options: Options) -> list[int]:
    """Tokens of the episodes. Raises ConfigError where there is none, or `which` has no meaning."""
    if options.which not in ("remembered", "all"):
        raise ConfigError(f"--which is {options.which}: it is remembered or all")
    stored = [one.token for one in listed(run, Wanted(), MOST) if one.stored and one.phase != "demo"]
    Random(options.seed).shuffle(stored)
    wanted = (token for token in stored if options.which == "all" or remembered(run, token))
    tokens = [token for token, _ in zip(wanted, range(options.episodes), strict=False)]
    if not tokens:
        raise ConfigError(f"{run.name} keeps no such episode")
    return tokens


def share(alike: Counter[str], of: Counter[str], what: str) -> float | None:
    """None where none was compared."""
    return alike[what] / of[what] if of[what] else None


def run(options: Options) -> int:
    """Print the JSON and the targets; 1 where one is missed. Raises ConfigError."""
    load, folder = os.getloadavg()[0], run_folder.find(Path(options.runs), options.run)
    deploy = deploy_files.stored(folder, ())
    alike, of, faults, differ = Counter[str](), Counter[str](), dict[str, str](), dict[str, list[str]]()
    for token in chosen(folder, options):
        try:
            line, recorded = whole(folder, str(token))
        except ConfigError as error:  # a run that goes on deletes steps
            faults[str(token)] = str(error)
            continue
        play = asyncio.run(played_again(deploy, recorded))
        if play.outcome is None:
            faults[line.trace] = play.detail
            continue
        others = [one.what for one in differences(recorded, play.steps, play.outcome)]
        counts = Counter({"episode": 1, "verdict": 1} | dict.fromkeys(("observation", "result"), len(recorded.steps)))
        of += counts
        alike += counts - Counter(others) - Counter({"episode": 1 if others else 0})
        if others:
            differ[line.trace] = others
        sys.stderr.write(f"{of['episode']}: {line.trace} {'differs' if others else 'is alike'}\n")
    bounds = {"observation": AGREE, "result": AGREE, "episode": AGREE, "verdict": JUDGED_ALIKE}
    targets = [
        Target(name=f"{what}s alike", measured=share(alike, of, what), bound=bound, unit="share", at_least=True)
        for what, bound in bounds.items()
    ]
    return show(
        RememberedResult(
            load_at_start=load, left_out=faults, targets=targets, run=folder.name, alike=alike, of=of, differ=differ
        )
    )
