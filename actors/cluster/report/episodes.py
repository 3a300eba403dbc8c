"""Reads whole episodes: prompts, answers, what came of them, and the screenshots that were kept.

An episode whose payload is gone is left out, never shown in part.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from actors.cluster.output import plain
from actors.cluster.runs import ledgers
from actors.cluster.runs.evaluation_rounds import gains, rounds_of
from actors.desktop.config import WHOLE_ONE_IN
from actors.replay.database import queries
from actors.replay.messages import PictureRef, VersionSpan
from runtime.errors import StoreError
from runtime.logs.reader import read_logs
from runtime.logs.writer import log_folder
from runtime.messaging.message import BlobRef
from runtime.segments import read_blob

MOST_LOOKED_AT = 4000
LEARNED_LOOKED_AT = 40


class ShownStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step as people read it; fields that an older payload lacks are empty."""

    observation: str = ""
    response: str = ""
    action: str | None = None
    refusal: str | None = None
    result: str | None = None
    temperature: float = 0.0
    screenshot: BlobRef | None = None
    pictures: list[PictureRef] = []
    prompt_ids: list[int] = []
    response_ids: list[int] = []
    logprobs: list[float] = []
    spans: list[VersionSpan] = []


class EpisodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A whole episode."""

    token: int
    task: str
    lane: str
    where: str  # the round's name, or the phase it was played in
    success: bool
    reason: str
    steps: list[ShownStep]
    pictures: dict[int, bytes]  # number of the step -> the PNG that the model saw, or a JPEG of what came after
    detail: str = ""  # what the verifier saw

    @property
    def family(self) -> str:
        return self.task.partition("/")[0]

    @property
    def task_line(self) -> str:
        """What the task asks for, as the first prompt has it; "" where the prompt has another form."""
        first = self.steps[0].observation.partition("\n")[0]
        return first.removeprefix("task: ") if first.startswith("task: ") else ""

    @property
    def verdict(self) -> str:
        return f"{'success' if self.success else 'failure'} ({plain(self.reason)})"


def choose(run: Path, most: int = 24) -> list[EpisodeView]:
    """One success and one failure per family; at most `most`.

    Evaluation before training, then those of which every screenshot was kept, newest first.
    """
    chosen: dict[tuple[str, bool], EpisodeView] = {}
    with ledgers.opened(run) as db:
        for row in queries.episodes_played(db, WHOLE_ONE_IN, MOST_LOOKED_AT):
            kind = (row["task"].partition("/")[0], bool(row["success"]))
            if kind not in chosen and (episode := read(run, db, row)) is not None:
                chosen[kind] = episode
    order = sorted(chosen, key=lambda kind: (kind[0], not kind[1]))
    shown = [chosen[kind] for kind in order][:most]
    tokens = {episode.token for episode in shown}
    lines = read_logs(run, event="episode_ended") if log_folder(run).is_dir() else iter(())
    details = {line["token"]: str(line.get("detail", "")) for line in lines if line["token"] in tokens}
    return [msgspec.structs.replace(episode, detail=details.get(episode.token, "")) for episode in shown]


class BeforeAndAfter(NamedTuple):
    """One held-out task as it was played in an early round and in a late one."""

    before: EpisodeView
    after: EpisodeView


def learned(run: Path, most: int = 3) -> list[BeforeAndAfter]:
    """Tasks that the first closed round missed and the last one solved, of another family each, at most `most`.

    Those without a refused answer first, then those with a screenshot, then short ones; none without two rounds of one
    decoding. Raises ConfigError without a ledger.
    """
    with ledgers.opened(run) as db:
        compared = gains(rounds_of(db))
        if not compared:
            return []
        names = compared[0].before, compared[0].after
        rows = [row for row in queries.episodes(db) if row["whereto"] in names and row["stored"]]
        first, last = ({row["task"]: row for row in rows if row["whereto"] == name} for name in names)
        tasks = [task for task in last if task in first and last[task]["success"] and not first[task]["success"]]
        tasks.sort(key=lambda task: (last[task]["steps"] + first[task]["steps"], task))
        played = [(read(run, db, first[task]), read(run, db, last[task])) for task in tasks[:LEARNED_LOOKED_AT]]
    pairs = [BeforeAndAfter(before, after) for before, after in played if before is not None and after is not None]
    pairs.sort(key=lambda pair: (sum(step.refusal is not None for step in pair.after.steps), not pair.after.pictures))
    best: dict[str, BeforeAndAfter] = {}
    for pair in pairs:
        best.setdefault(pair.after.family, pair)
    return list(best.values())[:most]


def read(run: Path, db: queries.Database, row: queries.Row) -> EpisodeView | None:
    """The whole episode of a row of `queries.episodes` or `episodes_played`; None where its steps are gone."""
    steps, pictures = [], {}
    try:
        for number, ref in enumerate(queries.steps_of(db, row["token"]), 1):
            step = msgspec.msgpack.decode(read_blob(run / "segments", ref.blob), type=ShownStep)
            steps.append(step)
            if (shot := step.pictures[-1].blob if step.pictures else step.screenshot) is not None:
                pictures[number] = read_blob(run / "segments", shot)
    except (StoreError, OSError, msgspec.DecodeError):
        return None  # a run that goes on throws payloads away under its reader
    if not steps:
        return None
    return EpisodeView(
        token=row["token"],
        task=row["task"],
        lane=row["lane"],
        where=row["whereto"] or "",
        success=bool(row["success"]),
        reason=row["reason"],
        steps=steps,
        pictures=pictures,
    )
