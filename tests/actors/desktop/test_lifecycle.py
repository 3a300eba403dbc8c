"""The life of desktops and their leases: pure, under every order of events and a virtual clock."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from actors.desktop.pool.desktops import DesktopState, Lease, Lives, PoolHealth
from actors.desktop.pool.pool import NoLog
from actors.errors import DesktopFault, LeaseLost
from runtime.errors import ProtocolError
from runtime.supervision import QuarantinePolicy

ORDER = list(DesktopState)
GENERATED = [Phase.explicit, Phase.reuse, Phase.generate]  # a failing history is short enough to read


class LivesMachine(RuleBasedStateMachine):
    """A pool, its callers and a clock; what must hold is checked against a model that shares no code with it."""

    leases: Bundle[Lease] = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.lives = Lives()
        self.now = 0.0
        self.count = 0
        self.numbers: list[int] = []
        self.holders: dict[str, Lease] = {}  # desktop -> its one lease, for ever
        self.taken_back: set[str] = set()
        self.frozen: set[str] = set()
        self.last: dict[str, DesktopState] = {}  # desktop -> where it was last seen

    def pick(self, data: st.DataObject, *states: DesktopState) -> str | None:
        names = self.lives.names(*states)
        return data.draw(st.sampled_from(names)) if names else None

    @rule()
    def one_boots(self) -> None:
        self.count += 1
        self.lives.begin(f"d{self.count}")
        self.last[f"d{self.count}"] = DesktopState.BOOTING

    @rule(data=st.data())
    def one_answers(self, data: st.DataObject) -> None:
        name = self.pick(data, *DesktopState)
        if name is not None and self.lives.state(name) is DesktopState.BOOTING:
            self.lives.booted(name)
        elif name is not None:
            with pytest.raises(ProtocolError):
                self.lives.booted(name)

    @rule(target=leases, data=st.data(), lasts_s=st.sampled_from([1.0, 2.0, 8.0]), who=st.sampled_from("abc"))
    def one_is_handed_out(self, data: st.DataObject, lasts_s: float, who: str) -> object:
        name = self.pick(data, *DesktopState)
        if name is None:
            return multiple()
        if self.lives.state(name) is not DesktopState.READY:
            with pytest.raises(ProtocolError):
                self.lives.lease(name, who, self.now, lasts_s)
            return multiple()
        assert name not in self.holders, "handed out twice"
        lease = self.lives.lease(name, who, self.now, lasts_s)
        assert lease.number > max(self.numbers, default=0)
        self.numbers.append(lease.number)
        self.holders[name] = lease
        return lease

    @rule(lease=leases, what=st.sampled_from(["may_call", "act", "freeze", "may_read"]), forged=st.integers(-2, 2))
    def somebody_uses_it(self, lease: Lease, what: str, forged: int) -> None:
        used = Lease(
            desktop=lease.desktop, number=lease.number + forged, holder="x", since=lease.since, until=lease.until
        )
        over = lease.desktop in self.taken_back or self.now >= lease.until or forged != 0
        frozen = lease.desktop in self.frozen
        use = getattr(self.lives, what)
        if over:
            with pytest.raises(LeaseLost) as lost:
                use(used, self.now)
            assert isinstance(lost.value, DesktopFault)
            assert lost.value.culprit == "seat"
        elif frozen != (what == "may_read"):
            with pytest.raises(ProtocolError):
                use(used, self.now)
        else:
            use(used, self.now)
            if what == "freeze":
                self.frozen.add(lease.desktop)

    @rule(data=st.data())
    def one_is_retired(self, data: st.DataObject) -> None:
        name = self.pick(data, *DesktopState)
        if name is not None:
            first = self.lives.state(name) is not DesktopState.RETIRING
            assert self.lives.retire(name) == first
            self.taken_back.add(name)

    @rule(data=st.data())
    def one_is_gone(self, data: st.DataObject) -> None:
        name = self.pick(data, *DesktopState)
        if name is None:
            return
        if self.lives.state(name) is DesktopState.RETIRING:
            self.lives.gone(name)
            assert self.lives.state(name) is DesktopState.GONE
        else:
            with pytest.raises(ProtocolError):
                self.lives.gone(name)

    @rule(seconds=st.sampled_from([0.25, 1.0, 4.0]), tended=st.booleans())
    def time_passes(self, seconds: float, tended: bool) -> None:
        """With or without a pool that takes back what is overdue."""
        self.now += seconds
        late = {name for name, lease in self.holders.items() if self.now >= lease.until}
        for name in sorted(late - self.taken_back) if tended else ():
            self.lives.retire(name)
            self.taken_back.add(name)

    @invariant()
    def lives_only_go_forward(self) -> None:
        for name, before in self.last.items():
            now = self.lives.state(name)
            assert ORDER.index(now) >= ORDER.index(before)
            if name in self.frozen:
                assert now in (DesktopState.FROZEN, DesktopState.RETIRING, DesktopState.GONE)
            self.last[name] = now

    def teardown(self) -> None:
        """The pool closes: whatever was begun ends gone."""
        for name in self.lives.names(*DesktopState):
            self.lives.retire(name)
            self.lives.gone(name)
        assert len(self.lives) == 0
        assert {self.lives.state(name) for name in self.last} <= {DesktopState.GONE}


TestLives = pytest.mark.slow(LivesMachine.TestCase)
TestLives.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, phases=GENERATED)


class PoolHealthMachine(RuleBasedStateMachine):
    """Faults, boots and outcomes in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = QuarantinePolicy(faults_in_a_row=3, first_probe_s=1.0, longest_probe_s=8.0)
        self.pool = PoolHealth(self.policy, "an image", NoLog())
        self.streak = {"host": 0, "image": 0}
        self.out = {"host": False, "image": False}

    @rule(who=st.sampled_from(["host", "image", "seat", "task"]))
    def faults(self, who: str) -> None:
        self.pool.faulted(DesktopFault("broken", "", who))
        if who in self.streak:
            self.streak[who] += 1
            self.out[who] = self.out[who] or self.streak[who] >= 3

    @rule()
    def boots(self) -> None:
        self.pool.booted("a desktop")
        for who in [who for who, out in self.out.items() if out]:
            self.out[who], self.streak[who] = False, 2

    @rule()
    def comes_to_an_outcome(self) -> None:
        self.pool.succeeded()
        for who, out in self.out.items():
            if not out:
                self.streak[who] = 0

    @invariant()
    def only_a_probe_ends_it(self) -> None:
        assert set(self.pool.quarantined) == {who for who, out in self.out.items() if out}
        delay = self.pool.probe_delay_s()
        assert (delay > 0) == bool(self.pool.quarantined)
        assert delay <= self.policy.longest_probe_s


TestPoolHealth = PoolHealthMachine.TestCase
TestPoolHealth.settings = settings(max_examples=50, stateful_step_count=30, deadline=None, phases=GENERATED)
