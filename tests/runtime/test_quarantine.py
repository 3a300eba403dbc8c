"""A part that keeps failing is used by one probe at a time, and only a probe's outcome lets it back."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from runtime.supervision import Quarantine, QuarantinePolicy, QuarantineState

POLICY = QuarantinePolicy(faults_in_a_row=3, first_probe_s=60.0, longest_probe_s=3600.0)


class QuarantineMachine(RuleBasedStateMachine):
    """One part, its uses in flight and a clock."""

    def __init__(self) -> None:
        super().__init__()
        self.part = Quarantine()
        self.now = 0.0
        self.token = 0
        self.out: list[int] = []
        self.probes: set[int] = set()
        self.streak = 0

    @rule(seconds=st.sampled_from([1.0, 30.0, 60.0, 500.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def asks(self) -> None:
        if not self.part.usable(self.now):
            return
        self.token += 1
        if self.part.state is not QuarantineState.FREE:
            assert not self.probes & set(self.out), "one probe at a time"
            self.probes.add(self.token)
        self.part = self.part.began(self.token)
        self.out.append(self.token)

    @rule(data=st.data(), own=st.booleans())
    def breaks(self, data: st.DataObject, own: bool) -> None:
        if not self.out:
            return
        token = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        before, self.part = self.part, self.part.faulted(token, POLICY, self.now, own=own)
        probe = token in self.probes and before.state is QuarantineState.PROBING
        if probe:
            assert self.part.state is QuarantineState.QUARANTINED
            wait_s = self.part.probe_at - self.now
            assert (wait_s == 0) == (not own)
            assert wait_s <= POLICY.longest_probe_s
        elif before.state is QuarantineState.FREE:
            self.streak += own
            assert (self.part.state is QuarantineState.QUARANTINED) == (self.streak >= POLICY.faults_in_a_row)
        else:
            assert self.part == before

    @rule(data=st.data())
    def comes_to_an_outcome(self, data: st.DataObject) -> None:
        if not self.out:
            return
        token = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        before, self.part = self.part, self.part.ended(token, POLICY)
        if before.state is QuarantineState.FREE:
            self.streak = 0
        elif token in self.probes and before.state is QuarantineState.PROBING:
            assert self.part.state is QuarantineState.FREE, "a probe lets it back"
            self.streak = POLICY.faults_in_a_row - 1
        else:
            assert self.part == before, "nothing but a probe does"

    @invariant()
    def while_it_is_probed_nothing_else_uses_it(self) -> None:
        if self.part.state is QuarantineState.PROBING:
            assert not self.part.usable(self.now + 1e9)
        if self.part.state is QuarantineState.FREE:
            assert self.part.streak == self.streak < POLICY.faults_in_a_row


TestQuarantine = QuarantineMachine.TestCase
TestQuarantine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_while_it_is_probed_only_the_probe_counts() -> None:
    part = Quarantine()
    for token in range(POLICY.faults_in_a_row):
        part = part.faulted(token, POLICY, 0.0)
    probed = part.began(9)
    assert (probed.state, probed.probe) == (QuarantineState.PROBING, 9)
    assert probed.ended(4, POLICY) == probed.faulted(4, POLICY, 70.0) == probed, "4 began before"
    assert probed.ended(9, POLICY).state is QuarantineState.FREE
    assert probed.faulted(9, POLICY, 70.0).probe_at == 70.0 + 2 * POLICY.first_probe_s


def test_its_edges() -> None:
    waiting = Quarantine(state=QuarantineState.QUARANTINED, streak=POLICY.faults_in_a_row, probe_at=10.0)
    assert (waiting.usable(9.9), waiting.usable(10.0)) == (False, True)
    probing = waiting.began(5)
    assert probing == Quarantine(state=QuarantineState.PROBING, streak=POLICY.faults_in_a_row, probe_at=10.0, probe=5)
    assert not probing.usable(99.0)
    assert probing.faulted(5, POLICY, 12.0, own=False) == Quarantine(
        state=QuarantineState.QUARANTINED, streak=POLICY.faults_in_a_row, probe_at=12.0
    )
    assert probing.faulted(4, POLICY, 12.0) == probing.ended(4, POLICY) == probing, "another use, which began before"
    free = probing.ended(5, POLICY)
    assert free == Quarantine(streak=POLICY.faults_in_a_row - 1)
    again = free.faulted(6, POLICY, 20.0)
    assert (again.state, again.probe_at, again.probe) == (QuarantineState.QUARANTINED, 20.0 + POLICY.first_probe_s, 0)
    assert free.ended(6, POLICY) == Quarantine()
    late = probing
    for failed in range(1, 40):
        late = late.faulted(5, POLICY, 0.0).began(5)
        assert late.probe_at == min(POLICY.longest_probe_s, POLICY.first_probe_s * 2.0**failed)
