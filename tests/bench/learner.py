"""`make bench NAME=learner`: what a step costs when a prompt that samples share is computed once, and when it is not.

Both ways train in turns on the same samples of a real run, from the same weights. A difference in the results is a
failure. The run itself is not changed.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from actors.cluster import output
from actors.cluster.config import deploy_files
from actors.cluster.runs import ledgers, run_folder, weights
from actors.learner import batches
from actors.learner.messages import StepPlan
from actors.replay.database import queries
from actors.replay.messages import Batch, GroupRef, Lane, Phase, PhaseRef, StepPayload, TrajectoryRef
from policy.packing import MicroBatch, PackedSample, pack
from policy.settings import OptimConfig
from runtime.errors import ConfigError, StoreError
from runtime.messaging.message import BlobRef, Version
from runtime.segments import read_blob
from tests.bench.report import Measured, Target, median, show

OFF_BY_MOST = 1e-3  # of the gradient's norm and the loss, relative
COMPARED = ("loss", "grad_norm", "entropy")
CHEAPER = 1.0  # times: a step with shared prompts costs no more


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure."""

    run: str = "last"
    runs: str = "runs"
    times: int = 3  # steps of each way, in turns; the median counts
    threads: int = 1  # that a step computes with


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A step of RL, one way."""

    way: str
    micro_batches: int
    tokens: int  # packed
    cpu_s: float


class LearnerResult(Measured, frozen=True, kw_only=True):
    """Both ways."""

    run: str
    groups: int
    samples: int
    steps: list[Step]
    cheaper: float  # times
    off_by: float  # the largest relative difference of a figure


def differing_groups(db: queries.Database) -> Iterator[tuple[int, str]]:
    """Number and task of the groups whose stored episodes differ in success, newest first."""
    rows = db.execute(
        "SELECT group_id, task FROM episodes WHERE lane = ? AND live = 1 GROUP BY group_id"
        " HAVING min(success) < max(success) ORDER BY group_id DESC",
        (Lane.TRAIN,),
    )
    yield from map(tuple, rows)


def trajectories_of(db: queries.Database, group: int) -> list[TrajectoryRef]:
    """The episodes of a group, in the order in which they ended."""
    rows = db.execute("SELECT token, success FROM episodes WHERE group_id = ? ORDER BY seq", (group,))
    return [
        TrajectoryRef(token=row["token"], success=bool(row["success"]), steps=queries.steps_of(db, row["token"]))
        for row in rows
    ]


def read_groups(run: Path, most: int) -> tuple[list[GroupRef], dict[BlobRef, StepPayload]]:
    """The newest groups of differing success whose episodes are still stored, at most `most`, and their payloads."""
    groups: list[GroupRef] = []
    payloads: dict[BlobRef, StepPayload] = {}
    with ledgers.opened(run) as db:
        for name, task in differing_groups(db):
            trajectories = trajectories_of(db, name)
            blobs = [step.blob for trajectory in trajectories for step in trajectory.steps]
            try:
                stored = {b: msgspec.msgpack.decode(read_blob(run / "segments", b), type=StepPayload) for b in blobs}
            except StoreError:
                continue  # a step that is no longer needed was given up
            payloads |= stored
            groups.append(GroupRef(group=str(name), task=task, trajectories=trajectories))
            if len(groups) == most:
                break
    return groups, payloads


def whole(samples: Sequence[PackedSample]) -> list[PackedSample]:
    """The same samples, each of which brings its own prompt: those with spans are packed by themselves."""
    return [
        msgspec.structs.replace(sample, spans=[(len(sample.ids) - sample.response_len, len(sample.ids))])
        for sample in samples
    ]


def measure(wanted: Options) -> LearnerResult:
    """Both ways. Raises ConfigError where the run holds no group to train on."""
    if wanted.times < 1 or wanted.threads < 1:
        raise ConfigError("--times and --threads count from 1")
    runs = Path(wanted.runs)
    path = weights.run_of(wanted.run, runs) or run_folder.find(runs, wanted.run)
    config = deploy_files.stored(path)
    groups, payloads = read_groups(path, config.replay.groups_per_step)
    if not groups:
        raise ConfigError(f"run {path.name} stores no group of differing success: it has not got to RL, or is too old")
    batch = Batch(
        lease=0,
        phase=PhaseRef(phase=Phase.RL, index=0),
        groups=groups,
        samples=[],
        staleness=[],
        fresh_optimizer=False,
        new_reference=False,
    )
    step = batches.plan(batch, payloads, config.learner, plan_id="bench", version=Version(lineage=0, step=1)).plan
    samples = [sample for micro in step.micro_batches for sample in micro.samples]
    ways = {"shared": step.micro_batches, "whole": pack(whole(samples), config.learner.token_budget)}
    folder = Path(weights.locate(str(path), runs).folder)
    figures, seconds, load = _timed(folder, ways, wanted, config.learner.optim(), step)
    steps = [
        Step(
            way=way,
            micro_batches=len(micro_batches),
            tokens=sum(micro.tokens for micro in micro_batches),
            cpu_s=median(seconds[way]) or 0.0,
        )
        for way, micro_batches in ways.items()
    ]
    shared, apart = (figures[way] for way in ways)
    off = max(abs(shared[name] - apart[name]) / max(abs(apart[name]), 1e-6) for name in COMPARED)
    cheaper = steps[1].cpu_s / steps[0].cpu_s
    targets = [
        Target(name="figures off by", measured=off, bound=OFF_BY_MOST, unit=""),
        Target(name="shared prompts cheaper", measured=cheaper, bound=CHEAPER, unit="times", at_least=True),
    ]
    return LearnerResult(
        run=path.name,
        load_at_start=load,
        groups=len(groups),
        samples=len(samples),
        steps=steps,
        cheaper=cheaper,
        off_by=off,
        targets=targets,
    )


def _timed(
    folder: Path, ways: dict[str, list[MicroBatch]], wanted: Options, optim: OptimConfig, plan: StepPlan
) -> tuple[dict[str, dict[str, float]], dict[str, list[float]], float]:
    """A step's figures and processor seconds of each, by way, and the machine's load before."""
    import torch

    load = os.getloadavg()[0]
    torch.set_num_threads(wanted.threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fused kernels that Megatron does not find, in training neither
        from policy.megatron.trainer import Trainer

        trainer = Trainer(folder, optim)
    trainer.new_reference()
    objective = plan.objective
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    figures: dict[str, dict[str, float]] = {}
    for number in range(wanted.times):
        for way, micro_batches in ways.items():
            output.line(f"  {way}, {number + 1} of {wanted.times}", to=sys.stderr)
            began = time.process_time()
            # a rate of 0: the weights stay
            figures[way] = trainer.grpo_step(micro_batches, 0.0, objective, plan.epochs)
            seconds[way].append(time.process_time() - began)
    return figures, seconds, load


def run(wanted: Options) -> int:
    """Measure and print; 1 when the two ways disagree."""
    return show(measure(wanted))
