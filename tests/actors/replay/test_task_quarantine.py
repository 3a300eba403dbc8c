"""Tasks that keep breaking episodes rest, and come back by a probe; samplers that fall silent are forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from ledger_tools import BROKEN, FAULT, Play, settings, step

from actors.replay import episodes, wards
from actors.replay.config import DemosConfig, LedgerSettings, ReplayConfig
from actors.replay.messages import NoWork, Phase, Reservation
from actors.replay.quarantine import FAULTS_IN_A_ROW, FIRST_PROBE_S, LONGEST_PROBE_S, Ward, WardState

Start = Callable[..., Play]


class WardMachine(RuleBasedStateMachine):
    """One task, its episodes in flight and a clock."""

    def __init__(self) -> None:
        super().__init__()
        self.ward = Ward()
        self.now = 0.0
        self.token = 0
        self.out: list[int] = []
        self.probes: set[int] = set()
        self.streak = 0
        self.rested_at: float | None = None

    @rule(seconds=st.sampled_from([1.0, 30.0, 60.0, 500.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def asks(self) -> None:
        if not self.ward.playable(self.now):
            return
        self.token += 1
        if self.ward.state is not WardState.WELL:
            assert not self.probes & set(self.out), "one probe at a time"
            self.probes.add(self.token)
        self.ward = self.ward.handed_out(self.token)
        self.out.append(self.token)

    @rule(data=st.data(), culprit=st.sampled_from(["task", "host", "sampler"]))
    def breaks(self, data: st.DataObject, culprit: str) -> None:
        if not self.out:
            return
        token = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        before, self.ward = self.ward, self.ward.broken(token, culprit, self.now)
        probe = token in self.probes and before.state is WardState.PROBING
        if probe:
            assert self.ward.state is WardState.RESTING
            wait_s = self.ward.probe_at - self.now
            assert (wait_s == 0) == (culprit != "task")
            assert wait_s <= LONGEST_PROBE_S
        elif before.state is WardState.WELL:
            self.streak += culprit == "task"
            assert (self.ward.state is WardState.RESTING) == (self.streak >= FAULTS_IN_A_ROW)
        else:
            assert self.ward == before

    @rule(data=st.data())
    def comes_to_an_outcome(self, data: st.DataObject) -> None:
        if not self.out:
            return
        token = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        before, self.ward = self.ward, self.ward.ended(token)
        if before.state is WardState.WELL:
            self.streak = 0
        elif token in self.probes and before.state is WardState.PROBING:
            assert self.ward.state is WardState.WELL, "a probe lets it back"
            self.streak = FAULTS_IN_A_ROW - 1
        else:
            assert self.ward == before, "nothing but a probe does"

    @invariant()
    def while_it_is_probed_nobody_else_plays_it(self) -> None:
        if self.ward.state is WardState.PROBING:
            assert not self.ward.playable(self.now + 1e9)
        if self.ward.state is WardState.WELL:
            assert self.ward.streak == self.streak < FAULTS_IN_A_ROW


TestWard = WardMachine.TestCase
TestWard.settings = hypothesis_settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_while_it_is_probed_only_the_probe_counts() -> None:
    ward = Ward()
    for token in range(FAULTS_IN_A_ROW):
        ward = ward.broken(token, "task", 0.0)
    probed = ward.handed_out(9)
    assert (probed.state, probed.probe) == (WardState.PROBING, 9)
    assert probed.ended(4) == probed.broken(4, "task", 70.0) == probed, "4 was handed out before the rest"
    assert probed.ended(9).state is WardState.WELL
    assert probed.broken(9, "task", 70.0).probe_at == 70.0 + 2 * FIRST_PROBE_S


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    opened: list[Play] = []

    def make(tasks: list[str] | None = None, demos: int = 0, **rules: Any) -> Play:
        small = {"group_size": 3, "group_min": 2, "groups_per_step": 2, "retries": 5} | rules
        config = LedgerSettings(
            seed=7, train_tasks=tasks or ["t0", "t1"], demo_tasks=["d0", "d1"], max_steps=5,
            demos=DemosConfig(count=demos), rules=ReplayConfig(**small), incarnation="test",
        )  # fmt: skip
        opened.append(Play(tmp_path, config))
        return opened[-1]

    yield make
    for play in opened:
        play.check()
        play.ledger.close()


def make_rest(play: Play, task: str) -> None:
    """Break episodes of `task` until it rests; others that come by are committed."""
    for _ in range(200):
        work = play.reserve()
        if work.task != task:
            play.commit(work, work.slot == 0)
            continue
        play.release(work, BROKEN)
        if play.figures().tasks_resting:
            return
    raise AssertionError(f"{task} never rested")


def test_a_task_that_breaks_episodes_rests_and_others_go_on(start: Start) -> None:
    play = start()
    play.rl()
    make_rest(play, "t1")
    (rests,) = play.events("task_rests")
    assert (rests["task"], rests["cause"], rests["faults"]) == ("t1", "setup_failed", FAULTS_IN_A_ROW)
    figures = play.figures()
    assert figures.tasks_resting == 1
    assert figures.endings["lost"] >= 1
    lost = {event["task"] for event in play.events("group_ended") if event["ending"] == "lost"}
    assert lost == {"t1"}
    rows = play.ledger.book.rows("SELECT task FROM groups WHERE state = 'open'")
    assert all(row["task"] != "t1" for row in rows), "its open groups ended"
    handed = []
    while isinstance(found := play.ask(f"desktop/x{len(handed)}"), Reservation):
        handed.append(found.task)
    assert handed
    assert set(handed) == {"t0"}
    assert play.ask("desktop/y") is None, "no work now, but the run is not over"


def test_the_only_one_that_is_well_is_found_from_anywhere_in_an_epoch(start: Start) -> None:
    play = start()
    play.rl()
    make_rest(play, "t1")
    found = play.do(lambda book: [wards.next_playable(book, ["t0", "t1"], number, 7) for number in range(40)])
    assert {one and one[0] for one in found} == {"t0"}
    assert {passed for _, passed in found} == {0, 1, 2}


def test_one_probe_lets_it_back_and_its_next_fault_sends_it_away(start: Start) -> None:
    play = start(tasks=["t0"])
    play.rl()
    make_rest(play, "t0")
    assert play.ask("desktop/1") is None
    play.wall += FIRST_PROBE_S + 1
    probe = play.reserve()
    assert play.ask("desktop/2") is None, "one probe at a time"
    play.release(probe, FAULT)
    probe = play.reserve()
    play.release(probe, BROKEN)
    assert play.ask("desktop/1") is None
    play.wall += FIRST_PROBE_S + 1
    assert play.ask("desktop/1") is None, "the wait between probes doubles"
    play.wall += FIRST_PROBE_S
    probe = play.reserve()
    play.commit(probe, False)
    (back,) = play.events("task_let_back")
    assert (back["task"], back["failed_probes"]) == ("t0", 1)
    assert play.figures().tasks_resting == 0
    again = play.reserve()
    assert again.group == probe.group, "the probe's group goes on"
    play.release(again, BROKEN)
    assert play.figures().tasks_resting == 1
    assert len(play.events("task_rests")) == 3


def test_an_episode_from_before_the_rest_ends_nothing(start: Start) -> None:
    play = start(tasks=["t0"])
    play.rl()
    old = play.reserve()
    make_rest(play, "t0")
    play.commit(old, True)
    assert play.figures().tasks_resting == 1
    assert play.figures().episodes["train"] == 1, "the episode itself is kept"


def test_a_killed_run_forgets_no_rest_and_tries_the_probe_again(start: Start) -> None:
    play = start(tasks=["t0"])
    play.rl()
    make_rest(play, "t0")
    play.wall += FIRST_PROBE_S + 1
    assert isinstance(play.ask("desktop/1"), Reservation)
    play.reopen(incarnation="next")
    assert play.figures().tasks_resting == 1
    play.serving("0.0")
    probe = play.reserve()
    play.commit(probe, True)
    assert play.figures().tasks_resting == 0


def test_demonstrations_and_rounds_go_on_without_it(start: Start) -> None:
    play = start(demos=2, retries=1)
    make_rest(play, "d1")
    play.wall += 1
    tasks = set()
    while isinstance(found := play.ask(f"desktop/d{len(tasks)}"), Reservation):
        tasks.add(found.task)
        play.commit(found, True, [step(None)])
    assert tasks <= {"d0"}
    play.phase(Phase.RL)
    play.open_eval("one", "0.0", ["d0", "d1"])
    work = play.reserve()
    assert work.task == "d0"
    play.commit(work, True)
    (closed,) = play.events("eval_round_closed")
    assert (closed["tasks"], closed["played"], closed["faults"]) == (2, 1, 1)


def test_all_tasks_resting_is_no_end_of_the_run(start: Start) -> None:
    play = start(tasks=["t0"])
    play.rl()
    make_rest(play, "t0")
    before = play.ledger.changes
    assert not isinstance(play.ask("desktop/1"), NoWork)
    assert play.ledger.changes == before, "asking in vain changes nothing: a change would wake who asks"


def test_a_sampler_that_vanished_holds_nothing_back(start: Start) -> None:
    play = start()
    play.rl()
    play.serving("0.0", "sampler/1")
    for number in range(1, 4):
        play.wall += 100
        play.serving(f"0.{number}")
        play.do(episodes.expire)
    (silent,) = play.events("sampler_silent")
    assert (silent["sampler"], silent["version"], silent["silent_s"]) == ("sampler/1", "0.0", 200.0)
    assert str(play.figures().served) == "0.3"
    play.wall += 200
    play.do(episodes.expire)
    assert play.figures().served is None, "with nobody left nothing is admitted"
    assert settings().rules.sampler_silent_s == 180.0


def test_a_ward_s_edges() -> None:
    resting = Ward(state=WardState.RESTING, streak=FAULTS_IN_A_ROW, probe_at=10.0)
    assert (resting.playable(9.9), resting.playable(10.0)) == (False, True)
    probing = resting.handed_out(5)
    assert probing == Ward(state=WardState.PROBING, streak=FAULTS_IN_A_ROW, probe_at=10.0, probe=5)
    assert not probing.playable(99.0)
    assert probing.broken(5, "seat", 12.0) == Ward(state=WardState.RESTING, streak=FAULTS_IN_A_ROW, probe_at=12.0)
    assert probing.broken(4, "task", 12.0) == probing.ended(4) == probing, "another episode of it, handed out before"
    well = probing.ended(5)
    assert well == Ward(streak=FAULTS_IN_A_ROW - 1)
    again = well.broken(6, "task", 20.0)
    assert (again.state, again.probe_at, again.probe) == (WardState.RESTING, 20.0 + FIRST_PROBE_S, 0)
    assert well.ended(6) == Ward()
    late = probing
    for failed in range(1, 40):
        late = late.broken(5, "task", 0.0).handed_out(5)
        assert late.probe_at == min(LONGEST_PROBE_S, FIRST_PROBE_S * 2.0**failed)
