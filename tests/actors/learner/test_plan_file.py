"""A batch that is too much for one message reaches the rank all the same, whole or not at all."""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from actors.learner import batches
from actors.learner.folders import PLANS
from actors.learner.messages import StepPlan
from actors.replay.messages import Phase
from policy.packing import MicroBatch, PackedSample
from runtime import segments
from runtime.disk import store_error
from runtime.errors import DiskRefuses, StoreError
from runtime.hosts.frames import MAX_FRAME_BYTES
from runtime.logs.reader import read_logs
from runtime.messaging.message import BlobRef
from tests.actors.learner.test_learner_actor import base, running  # noqa: F401 - a fixture
from tests.actors.learner.test_rank import BATCHES, load, model, rank, v  # noqa: F401 - fixtures

LONG = 4096


def plan(batches: list[MicroBatch], plan_id: str = "plan 1") -> StepPlan:
    return StepPlan(plan_id=plan_id, kind="cross_entropy", version=v(1), micro_batches=batches, lr=1e-2)


def large(samples: int) -> list[MicroBatch]:
    """Long episodes of a large model: high ids, a log-probability for each."""
    sample = PackedSample(
        ids=[150_000] * LONG, response_len=LONG - 1, weight=0.1, behaviour_logprobs=[-0.123456789] * (LONG - 1)
    )
    return [MicroBatch(samples=[sample])] * samples


def test_a_small_batch_goes_in_its_message(tmp_path: Path) -> None:
    assert batches.with_plan_file(plan(BATCHES), tmp_path) == plan(BATCHES)
    assert list(tmp_path.iterdir()) == []
    assert batches.micro_batches_of(plan(BATCHES)) == BATCHES


def test_what_stays_in_a_message_leaves_room_in_it(tmp_path: Path) -> None:
    """The bound on tokens is one on bytes, too."""
    most = batches.MOST_BYTES // batches.BYTES_PER_TOKEN // LONG
    sent = batches.with_plan_file(plan(large(most)), tmp_path)
    assert sent.plan_file is None
    assert len(msgspec.msgpack.encode(sent)) < 2 * batches.MOST_BYTES < MAX_FRAME_BYTES


def test_a_batch_whose_file_server_does_not_answer_is_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = batches.with_plan_file(plan(BATCHES), tmp_path, most_bytes=0)
    with monkeypatch.context() as away:
        away.setattr(Path, "open", Mock(side_effect=OSError(errno.ESTALE, "Stale file handle")))
        with pytest.raises(DiskRefuses, match=f"plan 1 can't be read from {tmp_path}.*Stale file handle"):
            batches.micro_batches_of(sent)
    assert batches.micro_batches_of(sent) == BATCHES


@pytest.mark.parametrize("spoil", [lambda old: old[:-1], lambda old: old + b"x", lambda old: b"\xff" + old[1:]])
def test_a_file_that_is_not_the_batch_is_refused(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    sent = batches.with_plan_file(plan(BATCHES), tmp_path, most_bytes=0)
    assert sent.plan_file is not None
    path = Path(sent.plan_file.location)
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(StoreError, match="is not the batch of plan 1"):
        batches.micro_batches_of(sent)


async def test_a_file_server_that_does_not_answer_costs_time_and_no_step(
    tmp_path: Path,
    base: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither the learner, which reads stored steps, nor the rank, which reads the packed batch, is started again.

    Each batch goes by a file, and none is left, be it of a learner that was killed.
    """
    monkeypatch.setattr(batches, "with_plan_file", functools.partial(batches.with_plan_file, most_bytes=0))
    folder = tmp_path / "run"
    (folder / PLANS / "0.9").mkdir(parents=True)
    (folder / PLANS / "0.9" / "micro_batches").write_bytes(b"of a learner that was killed")
    real, read = segments._pread, batches.micro_batches_of
    fails = [OSError(errno.ESTALE, "Stale file handle"), OSError(errno.ETIMEDOUT, "Connection timed out")]
    lost = [store_error("the batch can't be read", OSError(errno.ENOTCONN, "Transport endpoint is not connected"))]

    def failing(path: Path, ref: BlobRef) -> bytes:
        if fails:
            raise fails.pop()
        return real(path, ref)

    def refusing(sent: StepPlan) -> list[MicroBatch]:
        if lost:
            raise lost.pop()
        return read(sent)

    async with running(folder, base) as run:
        assert await run.seats.play(2, None) == 2
        monkeypatch.setattr(segments, "_pread", failing)
        monkeypatch.setattr(batches, "micro_batches_of", refusing)
        await run.enter(Phase.BC, steps=2)
        await run.trained("0.2")
        refusals = [line["cause"] for line in run.logged("disk_refuses")]
        assert [any(word in cause for cause in refusals) for word in ("Stale", "timed out", "endpoint")] == [True] * 3
        assert not run.logged("learner_resumed")
    assert not list(read_logs(folder, event="actor_failed"))
    assert not list(read_logs(folder, event="payloads_unreadable"))
    assert not (folder / PLANS).exists()
