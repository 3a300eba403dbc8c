"""Strata of demonstrated tasks: pure decisions, and the same decisions in a ledger that is killed on the way."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from actors.replay.demos import demo_files
from actors.replay.demos import format as demo_format
from actors.replay.demos.format import digest_of_step
from actors.replay.ledger import demo_tasks, retention
from actors.replay.messages import Lane, Phase, Reservation
from actors.replay.rules import cold_start
from actors.replay.rules.cold_start import (
    MIXED,
    POLICY,
    AttemptStage,
    AttemptTally,
    DemoTask,
    Rules,
    Stratum,
    TaskStratum,
    family_of,
    order,
    strata,
)
from actors.settings import DemosConfig
from runtime.segments import SegmentStore
from tests.actors.replay.ledger_tools import BROKEN, FAULT, Play, demo_tasks_begun, payload, settings, step

RULES = Rules(attempts=3, mixed=2, resamples=2, retries=1)
FIELDS = {AttemptStage.FIRST: "first", AttemptStage.MIXED: "mixed", AttemptStage.POLICY: "policy"}
small = st.integers(1, 4)
rules_of = st.builds(Rules, attempts=small, mixed=st.integers(0, 3), resamples=small, retries=st.integers(0, 2))


def put(task: DemoTask, stage: AttemptStage, **by: int) -> DemoTask:
    tally = task.tally(stage)
    after = {name: getattr(tally, name) + more for name, more in by.items()}
    return msgspec.structs.replace(task, **{FIELDS[stage]: msgspec.structs.replace(tally, **after)})


@given(rules_of, st.integers(0, 2), st.data())
def test_every_task_gets_exactly_the_attempts_that_its_stratum_calls_for(
    rules: Rules, rounds: int, data: st.DataObject
) -> None:
    """Attempts overlap, end in any order and break; a stratum once settled stays."""
    task = DemoTask(task="a/train/1")
    settled: Stratum | None = None
    stays = range(rounds + 1)  # the pool's, then the policy's
    for now in stays:
        out: list[AttemptStage] = []
        for _ in range(200):
            stage = cold_start.next_stage(task, rules, now)
            assert (cold_start.left(task, rules, now) == 0) == (stage is None and not out), (
                "over exactly when nothing is left"
            )
            if stage is not None and (not out or data.draw(st.booleans())):
                out.append(stage)
                task = put(task, stage, out=1)
            elif out:
                ended = out.pop(data.draw(st.integers(0, len(out) - 1)))
                fate = data.draw(st.sampled_from(["win", "loss", "win", "loss", "fault"]))
                if fate == "fault":
                    task = msgspec.structs.replace(put(task, ended, out=-1), faults=task.faults + 1)
                else:
                    task = put(task, ended, out=-1, tries=1, wins=fate == "win")
            else:
                break
            assert task.out == len(out)
            found = cold_start.stratum(task, rules)
            assert settled is None or found is settled
            settled = found
        assert task.out == 0
    if cold_start.set_aside(task, rules, rounds) or cold_start.set_aside(task, rules, 0):
        assert task.faults > rules.retries
        return
    assert task.first.tries == rules.attempts
    assert task.mixed.tries == (rules.mixed if settled is Stratum.NEVER else 0)
    assert task.policy.tries == (rules.resamples * rounds if settled is Stratum.SOMETIMES else 0)


def test_faults_of_first_attempts_leave_the_policy_its_own() -> None:
    rules = cold_start.Rules(attempts=2, mixed=2, resamples=1, retries=2)
    task = cold_start.DemoTask(task="a", first=cold_start.AttemptTally(tries=2, wins=1), faults=4)
    assert not cold_start.set_aside(task, rules, 0)
    assert cold_start.next_stage(task, rules, 1) is cold_start.AttemptStage.POLICY
    assert cold_start.set_aside(msgspec.structs.replace(task, faults=6), rules, 1)
    mixed = cold_start.AttemptTally(tries=2)
    assert not cold_start.set_aside(DemoTask(task="a", first=mixed, mixed=mixed, faults=5), rules, 1)


@pytest.mark.parametrize(
    ("tries", "wins", "imported", "where"),
    [
        (3, 3, False, Stratum.ALWAYS),
        (3, 1, False, Stratum.SOMETIMES),
        (3, 0, False, Stratum.NEVER),
        (2, 2, False, None),
        (2, 0, False, None),
        (1, 1, True, Stratum.ALWAYS),
        (2, 2, True, Stratum.ALWAYS),
        (2, 1, True, Stratum.SOMETIMES),
        (0, 0, True, None),
    ],
)
def test_the_rule(tries: int, wins: int, imported: bool, where: Stratum | None) -> None:
    task = DemoTask(task="t", first=AttemptTally(tries=tries, wins=wins), imported=imported)
    assert cold_start.stratum(task, RULES) is where
    if imported:
        assert cold_start.next_stage(task, RULES, 0) is None, (
            "what was recorded elsewhere is not tried again by the pool"
        )
        assert (cold_start.next_stage(task, RULES, 1) is AttemptStage.POLICY) == (where is Stratum.SOMETIMES)


@given(st.lists(st.text("abc", min_size=1), min_size=2, max_size=5, unique=True), st.integers(0, 2**60))
def test_members_take_turns_in_an_order_of_the_task(names: list[str], seed: int) -> None:
    def member(tries: int = 0, out: int = 0, faults: int = 0, seed: int = seed) -> str:
        first = AttemptTally(tries=tries, out=out)
        return cold_start.member_of(DemoTask(task="t", first=first, faults=faults), names, seed)

    turns = [member(tries) for tries in range(len(names))]
    assert sorted(turns) == sorted(names)
    for tries, out, faults in ((1, 1, 0), (0, 1, 1), (2, 0, 1), (1, 2, 3)):
        assert member(tries, out, faults) == turns[(tries + out + faults) % len(names)]
    assert {member(seed=other) for other in range(99)} == set(names)


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_opening_is_bounded(stored: int, pending: int, opened: int) -> None:
    opens = cold_start.may_open(stored, pending, opened, count=5, most=12, attempts=3)
    assert opens == (stored + pending < 5 and opened < 4)


# -- the same in a ledger


def stratified(**more: object) -> DemosConfig:
    plain: dict[str, object] = {
        "count": 6, "attempts_per_task": 2, "mixed_attempts": 1, "resample_rounds": 1, "resample_attempts": 2
    }  # fmt: skip
    return msgspec.convert(plain | more, DemosConfig)


class Show:
    """A ledger whose tasks d0.. of two families are solved as their number says: always, sometimes, never."""

    def __init__(self, folder: Path, config: DemosConfig | None = None) -> None:
        self.play = Play(
            folder,
            config=msgspec.structs.replace(
                settings(demos=1),
                demos=config or stratified(),
                demo_tasks=[f"{family}/train/{n}" for n in range(6) for family in "ab"],
                demo_members={"a": ["gui", "api"], "b": ["gui", "hasty"]},
                tokenizer="t1",
            ),
        )
        self.tried: Counter[tuple[str, str]] = Counter()
        self.firsts: Counter[str] = Counter()

    def success(self, work: Reservation) -> bool:
        number = int(work.task[-1]) % 3
        if work.member in (MIXED, POLICY):
            return True
        self.firsts[work.task] += 1
        return number == 0 or (number == 1 and self.firsts[work.task] == 1)

    def run(self, seats: int = 2, kill_every: int = 0) -> None:
        for turn in range(400):
            works = [self.play.ask(f"desktop/{seat}") for seat in range(seats)]
            works = [work for work in works if isinstance(work, Reservation)]
            if not works:
                assert self.play.figures().demo_left == 0
                return
            assert (self.play.figures().demo_left or 0) >= len(works)
            if kill_every and turn % kill_every == 0:
                self.play.reopen(incarnation=f"life {turn}")
                continue
            for work in works:
                assert work.lane is Lane.DEMO
                self.tried[work.task, work.member] += 1
                self.play.commit(work, self.success(work), [step("0.0" if work.member == POLICY else None)])
        raise AssertionError("never over")


def test_all_three_strata_and_resampling_in_a_ledger(tmp_path: Path) -> None:
    show = Show(tmp_path)
    show.run()
    figures = show.play.figures()
    held = figures.demo_tasks
    assert figures.demos >= 6
    assert {name.partition("/")[2] for name in held} == {"always", "sometimes", "never"}
    for (task, member), times in show.tried.items():
        assert member in {"a": ("gui", "api", MIXED), "b": ("gui", "hasty", MIXED)}[task[0]]
        assert times == 1, "each member once, and one mixed attempt"
        assert (member == MIXED) <= (int(task[-1]) % 3 == 2)
    show.play.phase(Phase.BC)
    assert show.play.events("demo_strata")[0]["tasks"] == held
    assert len(show.play.do(lambda tx: retention.tokens(tx, tx.segment()))) == figures.demos
    show.play.phase(Phase.DEMO)
    assert show.play.figures().demo_left
    assert not isinstance(show.play.ask("desktop/0"), Reservation), "no sampler has said what it serves"
    show.play.serving("0.0")
    show.tried.clear()
    show.run()
    sometimes = sum(count for name, count in held.items() if name.endswith("/sometimes"))
    assert sometimes > 0
    assert {member for _, member in show.tried} == {POLICY}
    assert Counter(show.tried.values()) == {2: sometimes}
    assert show.play.figures().demos == figures.demos + 2 * sometimes
    show.play.phase(Phase.BC)
    assert show.play.events("demo_strata")[-1]["policy"] == {"tries": 2 * sometimes, "wins": 2 * sometimes}
    assert show.play.figures().demo_left is None


def test_a_task_that_keeps_breaking_is_set_aside(tmp_path: Path) -> None:
    show = Show(tmp_path, stratified(count=2, attempts_per_demo=2.0))
    for _ in range(30):
        work = show.play.ask("desktop/0")
        if not isinstance(work, Reservation):
            break
        show.play.release(work, FAULT)
    else:
        raise AssertionError("faults without end")
    figures = show.play.figures()
    assert figures.demo_left == 0
    assert set(figures.demo_tasks) == {"a/aside", "b/aside"}


def test_a_task_at_rest_is_not_waited_for(tmp_path: Path) -> None:
    show = Show(tmp_path, stratified(count=3))
    first = work = show.play.reserve("desktop/0")
    members = [work.member]
    for _ in range(2):
        show.play.release(work, BROKEN)
        work = show.play.reserve("desktop/0")
        assert work.task == first.task
        members.append(work.member)
    assert members[0] != members[1], "the next in turn tries it"
    show.play.release(work, BROKEN)
    assert len(show.play.events("task_rests")) == 1
    show.run()
    rows = {row.task: row for row in show.play.do(demo_tasks_begun)}
    assert rows[first.task].first.tries == 0
    assert all(row.first.tries == 2 for task, row in rows.items() if task != first.task)
    assert show.play.figures().demos >= 3


def test_a_recording_carries_its_strata(tmp_path: Path) -> None:
    tasks = [
        demo_format.TaskAttempts(task="a/train/0", tries=2, wins=2),
        demo_format.TaskAttempts(task="a/train/1", tries=2, wins=1),
        demo_format.TaskAttempts(task="b/train/1", tries=2, wins=1),
        demo_format.TaskAttempts(task="b/train/2", tries=2, wins=0, mixed_tries=1),
    ]
    wanted = {"a/always": 1, "a/sometimes": 1, "b/sometimes": 1, "b/never": 1}
    made = [demo("a/train/0", "gui"), demo("a/train/1", "api"), demo("b/train/1", MIXED)]
    header = demo_format.RecordingHeader(format=demo_format.FORMAT, tokenizer="t1", form="", demos=3, tasks=tasks)
    file = tmp_path / "x.parquet"
    demo_files.write(file, header, made)
    assert demo_files.read(file)[0] == header
    assert list(demo_files.read(file)[1]) == made
    for count in (3, 2):
        folder = tmp_path / str(count)
        folder.mkdir()
        show = Show(folder, stratified(count=count))
        assert take_in(show, file, folder) == count
        assert show.play.figures().demo_left == 0, "a source that suffices leaves nothing to record"
        held = show.play.figures().demo_tasks
        # Of a recording not taken in whole: the tasks of what was, and those that gave nothing.
        assert held == wanted if count == 3 else held == {key: wanted[key] for key in wanted if key != "b/sometimes"}
        assert not isinstance(show.play.ask(), Reservation)
        show.play.phase(Phase.BC)
        show.play.phase(Phase.DEMO)
        show.play.serving("0.0")
        work = show.play.reserve()
        assert (work.member, work.task) == (POLICY, "a/train/1")
        assert demo_files.read(folder)[0].tasks[0] == tasks[0]


def demo(task: str, member: str) -> demo_format.Demo:
    content = payload(response=task, by=member)
    digest = digest_of_step(content)
    one = demo_format.DemoStep(digest=digest, well_formed=True, payload=content)
    return demo_format.Demo(task=task, route="", member=member, reason="verified", wall_s=1.0, busy_s=1.0, steps=[one])


def take_in(show: Show, path: Path, folder: Path) -> int:
    store = SegmentStore(folder / "segments", "x")
    try:
        return int(show.play.do(lambda tx: demo_tasks.import_demos(tx, path, store, folder)))
    finally:
        store.close()


@hypothesis_settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(["ask", "win", "loss", "fault", "kill", "time"]), max_size=60))
def test_tallies_equal_what_happened(happenings: list[str]) -> None:
    """Against a model of its own: commits counted by hand."""
    with tempfile.TemporaryDirectory() as folder:
        show = Show(Path(folder))
        out: list[Reservation] = []
        wins: Counter[str] = Counter()
        tries: Counter[str] = Counter()
        for number, what in enumerate(happenings):
            if what == "ask":
                found = show.play.ask(f"seat/{number}")
                out += [found] if isinstance(found, Reservation) else []
            elif what == "kill":
                show.play.reopen(incarnation=f"life {number}")
                out = []
            elif what == "time":
                show.play.wall += 1.0
            elif out:
                work = out.pop(0)
                if what == "fault":
                    show.play.release(work, FAULT)
                else:
                    show.play.commit(work, what == "win", [step(None)])
                    show.play.commit(work, what != "win", [step(None)])
                    tries[work.task] += 1
                    wins[work.task] += what == "win"
        rows = show.play.do(demo_tasks_begun)
        assert {row.task: row.first.tries + row.mixed.tries for row in rows if tries[row.task]} == +tries
        assert Counter({row.task: row.first.wins + row.mixed.wins for row in rows}) == wins
        assert sum(row.out for row in rows) == len(out)


A, B, C = (TaskStratum(family, "", [f"{family}/1"]) for family in "abc")


def test_a_task_is_of_the_family_before_its_first_slash() -> None:
    assert family_of("calc_sheet/train/7") == "calc_sheet"
    assert family_of("alone") == ""


def test_each_route_of_a_family_is_a_stratum_in_the_order_of_tasks() -> None:
    found = strata(["b/1", "a/1", "b/2"], {"b": ["keys", "mouse"]})
    assert found == [
        TaskStratum("b", "keys", ["b/1", "b/2"]),
        TaskStratum("b", "mouse", ["b/1", "b/2"]),
        TaskStratum("a", "", ["a/1"]),
    ]
    assert [one.name for one in found] == ["b/keys", "b/mouse", "a/"]


@pytest.mark.parametrize(
    ("among", "stored", "tried", "most", "first"),
    [
        ([A, B, C], {"a/": 1}, {}, 30, [B, C, A]),  # what holds least comes first
        ([A, B, C], {"a/": 2, "b/": 1, "c/": 1}, {"b/": 3, "c/": 2}, 30, [C, B, A]),  # of equals what was tried least
        ([A, B], {}, {"a/": 1}, 30, [B, A]),
        ([B, A], {"a/": 0}, {"b/": 0}, 30, [B, A]),  # what is unknown counts as none
        ([B, A], {"b/": 0}, {}, 2, [B, A]),
        ([A, B], {"b/": 9}, {"a/": 5}, 10, [B, A]),  # its share of two is used up
        ([A, B], {"b/": 9}, {"a/": 4}, 10, [A, B]),
        ([A, B], {"b/": 9}, {"a/": 5}, 11, [A, B]),  # a share is rounded up
        ([A, B], {"b/": 9}, {"a/": 6}, 11, [B, A]),
        ([A], {}, {"a/": 1}, 2, [A]),
        ([B, A], {"a/": 9}, {"b/": 1}, 2, [A, B]),
        ([], {}, {}, 10, []),
    ],
)
def test_the_order_of_strata(
    among: list[TaskStratum], stored: dict[str, int], tried: dict[str, int], most: int, first: list[TaskStratum]
) -> None:
    assert order(among, stored, tried, most=most) == first
