"""Micro-batches that are too large for a message travel in a file beside the run.

Invariant: the rank reads exactly what was packed, or nothing, because size and digest are in the plan. At most one such
file lies there until the rank has learned from it. The next learner has removed what a killed learner left.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from actors.learner.folders import plan_of
from actors.learner.messages import PlanFile, StepPlan
from policy.packing import MicroBatch
from runtime.disk import store_error
from runtime.errors import StoreError

MOST_BYTES = 16 << 20  # of micro-batches inside a message, which may have 64 MiB with all that is in it
BYTES_PER_TOKEN = 16  # at most, encoded: an id takes 5 and a log-probability 9
MakeFolder = Callable[[str, Callable[[Path], None]], None]
_NAME = "micro_batches"


def sent(plan: StepPlan, run_dir: Path, make_folder: MakeFolder, most_bytes: int = MOST_BYTES) -> StepPlan:
    """`plan` as it goes to the rank: itself where it is small, else with its micro-batches in a file of the run's.

    `run_dir` is the run's folder with the main host, and `make_folder` is the context's. Raises StoreError.
    """
    tokens = sum(len(sample.ids) for micro in plan.micro_batches for sample in micro.samples)
    if tokens * BYTES_PER_TOKEN <= most_bytes:
        return plan
    content = msgspec.msgpack.encode(plan.micro_batches)
    folder = plan_of(run_dir, plan.version)  # of its own: what a rank elsewhere has is known by it

    def write(here: Path) -> None:
        path = here / _NAME
        part = path.with_suffix(".part")
        try:
            here.mkdir(parents=True, exist_ok=True)
            part.write_bytes(content)
            part.replace(path)
        except OSError as error:
            raise store_error(f"can't write {path}", error) from error

    make_folder(str(folder), write)
    plan_file = PlanFile(location=str(folder / _NAME), size_bytes=len(content), digest=_digest(content))
    return msgspec.structs.replace(plan, micro_batches=[], plan_file=plan_file)


def received(plan: StepPlan) -> list[MicroBatch]:
    """The micro-batches of a plan. Raises StoreError when the file is not what the plan says."""
    if plan.plan_file is None:
        return plan.micro_batches
    try:
        with Path(plan.plan_file.location).open("rb") as file:
            content = file.read(plan.plan_file.size_bytes + 1)
    except OSError as error:
        raise StoreError(f"the batch of {plan.plan_id} can't be read: {error}") from error
    if len(content) != plan.plan_file.size_bytes or _digest(content) != plan.plan_file.digest:
        raise StoreError(f"{plan.plan_file.location} is not the batch of {plan.plan_id}")
    return msgspec.msgpack.decode(content, type=list[MicroBatch])


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
