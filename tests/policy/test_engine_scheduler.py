"""The scheduler under arbitrary arrivals, aborts, retractions and pauses: rows are exclusive, all ends come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.engine.scheduler import FOLLOW, Draw, Scheduler, Sequence
from policy.errors import EngineBusy

ROWS, WAITING, BUDGET, BLOCK = 3, 6, 5, 2


def sequence(rid: str, prompt: int, tokens: int, lane: int = FOLLOW, first: int = 0) -> Sequence:
    draw = Draw(max_new_tokens=tokens, temperature=0.0, stop_ids=frozenset(), seed=0)
    return Sequence(rid=rid, ids=[first + i for i in range(prompt)], draw=draw, lane=lane)


def make() -> Scheduler:
    return Scheduler(rows=ROWS, max_queued_requests=WAITING, prefill_tokens=BUDGET, block=BLOCK)


def one_pass(scheduler: Scheduler) -> list[Sequence]:
    """What the engine does, without a model; returns who was served."""
    scheduler.admit()
    works = scheduler.plan()
    assert len({work.sequence.lane for work in works}) <= 1
    sizes = [work.end - work.start for work in works]
    assert sizes == sorted(sizes, key=lambda size: size > 1), "one-token work comes first"
    assert sum(size for size, work in zip(sizes, works, strict=True) if work.sequence.remaining > 1) <= BUDGET
    for work in works:
        one = work.sequence
        one.computed = work.end
        if work.end == len(one.ids):
            one.append(7, -0.5, "0.0")
            if one.finish is not None:
                scheduler.release(one)
    rows = [one.row for one in scheduler.running]
    assert None not in rows
    assert len(set(rows)) == len(rows) <= ROWS
    return [work.sequence for work in works]


OPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 9), st.integers(1, 4), st.sampled_from([FOLLOW, 0, 1])),
        st.tuples(st.just("step"), st.just(0), st.just(0), st.just(0)),
        st.tuples(st.just("abort"), st.integers(0, 9), st.just(0), st.just(0)),
        st.tuples(st.just("retract"), st.just(0), st.just(0), st.just(0)),
        st.tuples(st.just("pause"), st.integers(0, 1), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@given(OPS)
def test_every_sequence_ends_once(ops):
    scheduler, all_of_them, paused = make(), [], False
    for op, a, b, lane in ops:
        if op == "submit":
            one = sequence(str(len(all_of_them)), a, b, lane, first=a % 3)
            if len(scheduler.waiting) >= WAITING:
                with pytest.raises(EngineBusy):
                    scheduler.submit([one])
            else:
                scheduler.submit([one])
                all_of_them.append(one)
        elif op == "step":
            served = one_pass(scheduler)
            assert not (paused and served)
        elif op == "abort":
            ended = scheduler.abort(lambda one, rid=str(a): one.rid == rid)
            assert all(one.finish.kind == "abort" and one.row is None for one in ended)
        elif op == "retract":
            assert all(one.row is None and one.computed == 0 for one in scheduler.retract())
        else:
            scheduler.paused = paused = bool(a)
    scheduler.paused = False
    for _ in range(sum(len(one.ids) + 6 for one in all_of_them) * 3 + 5):
        if scheduler.idle:
            break
        one_pass(scheduler)
    assert scheduler.idle
    assert all(one.finish is not None and one.row is None for one in all_of_them)
    for one in all_of_them:
        if one.finish.kind == "length":
            assert len(one.logprobs) == one.draw.max_new_tokens == one.spans[-1].end


def test_no_lane_starves():
    scheduler = make()
    scheduler.submit([sequence("a", 2, 50, lane=0), sequence("b", 2, 3, lane=1, first=5)])
    served = [one.rid for _ in range(6) for one in one_pass(scheduler)]
    assert served.count("b") == 3


def test_a_request_steps_aside_for_its_twin_and_no_one_else():
    scheduler = Scheduler(rows=3, max_queued_requests=6, prefill_tokens=100, block=2)
    scheduler.submit([sequence("a", 8, 2), sequence("twin", 8, 2), sequence("other", 8, 2, first=50)])
    assert [one.rid for one in scheduler.admit()] == ["a", "other"]
    for work in scheduler.plan():
        work.sequence.computed = work.end
    assert [one.rid for one in scheduler.admit()] == ["twin"]


def test_length_is_looked_at_before_stop_tokens():
    draw = Draw(max_new_tokens=1, temperature=0.0, stop_ids=frozenset({7}), seed=0)
    one = Sequence(rid="a", ids=[1], draw=draw)
    one.append(7, -1.0, "0.0")
    assert one.finish is not None
    assert one.finish.kind == "length"
