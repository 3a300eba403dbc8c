"""What a pulse learns from: some of each task's committed successes of the stay before it, and of them what earned."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.errors import LedgerError
from actors.replay.ledger import retention
from actors.replay.messages import Lane, Phase, Reservation, StepRef
from tests.actors.replay.ledger_tools import Play, step


class Run:
    """A ledger whose episodes are remembered."""

    def __init__(self, folder: Path, **rules: Any) -> None:
        self.play = Play(folder, **({"max_staleness": 50} | rules))
        self.task: dict[int, str] = {}  # token -> task of a successful training episode
        self.good: dict[str, int] = {}  # blob digest -> token, of well-formed steps of those
        self.rest: set[str] = set()  # digests of every other step

    def commit(self, work: Reservation, success: bool, version: str | None = "0.0") -> None:
        steps = [step(version), step(version, well_formed=False), step(version)]
        earned = success and work.lane is Lane.TRAIN
        if earned:
            self.task[work.token] = work.task
        for one in steps:
            if earned and one.well_formed:
                self.good[one.blob.digest] = work.token
            else:
                self.rest.add(one.blob.digest)
        self.play.commit(work, success, steps)

    def group(self, version: str = "0.0") -> None:
        for success in (True, False):
            self.commit(self.play.reserve(), success, version)

    def pool(self) -> list[StepRef]:
        """Every step of the pulse's pool, each once: an epoch of minibatches."""
        tx = self.play.ledger.tx
        stay = tx.segment()
        drawn = [ref for batch in range(50) for ref in retention.draw_samples(tx, stay, batch)]
        return list({ref.blob.digest: ref for ref in drawn}.values())

    def tokens(self) -> list[int]:
        return sorted({self.good[ref.blob.digest] for ref in self.pool()})


def test_answers_longer_than_those_drawn_are_left_out_and_told(tmp_path: Path) -> None:
    play = Play(tmp_path, demos=1, max_new_tokens=5)
    fits, long = step(None), msgspec.structs.replace(step(None), response_tokens=6)
    play.commit(play.reserve(), True, [fits, long])
    play.phase(Phase.BC, steps=3)
    samples = play.batch().samples
    assert {ref.blob.digest for ref in samples} == {fits.blob.digest}
    assert play.events("answers_too_long") == [{"left_out": 1, "learned": 1, "longest": 6, "most": 5}]


def test_a_pool_of_nothing_but_long_answers_is_an_error(tmp_path: Path) -> None:
    play = Play(tmp_path, demos=1, max_new_tokens=2)
    play.commit(play.reserve(), True, [step(None)])
    play.phase(Phase.BC, steps=3)
    with pytest.raises(LedgerError, match=r"sampling\.max_new_tokens 2: the longest has 3"):
        play.take()


def test_only_steps_that_earned_a_reward(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.play.rl()
    for _ in range(6):
        run.group()
    run.play.phase(Phase.PULSE, steps=5)
    digests = {ref.blob.digest for ref in run.pool()}
    assert digests == set(run.good), "every well-formed step of every success"
    assert not digests & run.rest, "no malformed step, no failure"


def test_some_per_task_at_random(tmp_path: Path) -> None:
    run = Run(tmp_path, reservoir_per_task=8, pulse_per_task=2)
    run.play.rl()
    for _ in range(24):
        run.group()
    run.play.phase(Phase.PULSE, steps=5)
    tokens = run.tokens()
    assert Counter(run.task[token] for token in tokens) == {"t0": 2, "t1": 2, "t2": 2}
    run.play.reopen()
    assert run.tokens() == tokens, "the same after a restart"
    tx = run.play.ledger.tx
    times: Counter[int] = Counter()
    for seed in range(80):
        tx.settings = msgspec.structs.replace(run.play.settings, seed=seed)
        times.update(retention.tokens(tx, tx.segment()))
    # 2 of 8 in 80 draws: 20 on average, with a standard deviation of 3.9.
    assert set(times) == set(run.task)
    assert 6 <= min(times.values()) <= max(times.values()) <= 36


def test_exercises_alone_where_no_trajectory_is_taken(tmp_path: Path) -> None:
    run = Run(tmp_path, demos=1, pulse_per_task=0)
    run.commit(run.play.reserve(), True, None)
    run.play.rl()
    run.group()
    run.play.phase(Phase.PULSE, steps=2)
    batch = run.play.batch()
    assert (batch.phase.phase, batch.samples, batch.groups) == (Phase.PULSE, [], [])
    run.play.trained(batch)
    run.play.trained(run.play.batch())
    assert run.play.ledger.tx.steps_by_phase()[Phase.PULSE] == 2


def test_of_that_stay_alone(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.play.rl()
    for _ in range(3):
        run.group()
    before = set(run.task)
    run.play.phase(Phase.PULSE, steps=1)
    run.play.trained(run.play.batch())
    run.play.rl()
    version = str(run.play.ledger.tx.trained)
    for _ in range(3):
        run.group(version)
    run.play.phase(Phase.PULSE, steps=1)
    tokens = run.tokens()
    assert set(tokens) == set(run.task) - before


def test_neither_demonstrations_nor_evaluations(tmp_path: Path) -> None:
    run = Run(tmp_path, demos=2)
    for _ in range(2):
        run.commit(run.play.reserve(), True, None)
    run.play.phase(Phase.RL, steps=None)
    run.play.open_eval("r", "0.0", ["t0", "t1"])
    for _ in range(2):  # training has no work before a sampler serves
        run.commit(run.play.reserve(), True)
    run.play.serving("0.0")
    run.group()
    run.play.phase(Phase.PULSE, steps=1)
    assert run.tokens() == sorted(run.task)
    assert len(run.task) == 1


def test_and_some_demonstrations_where_the_file_says_so(tmp_path: Path) -> None:
    run = Run(tmp_path, demos=6, pulse_demos=2)
    shown: set[int] = set()
    for success in (True, True, False, True, True, True, True):
        work = run.play.reserve()
        assert work.lane is Lane.DEMO
        run.commit(work, success, None)
        shown |= {work.token} if success else set()
    run.play.rl()
    run.group()
    own = set(run.task)
    seen: set[int] = set()
    for _ in range(6):
        run.play.phase(Phase.PULSE, steps=5)
        tx = run.play.ledger.tx
        tokens = retention.tokens(tx, tx.segment())
        assert own < set(tokens)
        assert len(set(tokens) & shown) == 2 == len(set(tokens) - own), "successful ones alone"
        run.play.reopen()
        tx = run.play.ledger.tx
        assert retention.tokens(tx, tx.segment()) == tokens, "the same after a restart"
        seen |= set(tokens) & shown
        before = set(run.task)
        run.play.rl()
        run.group()
        own = set(run.task) - before
    assert len(seen) > 2, "other ones each time"
