"""An episode on what is remembered comes to what a desktop would have shown, by at most one lease."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from actors.desktop import memo as memos
from actors.desktop.config import DesktopsConfig, PoolConfig, SandboxConfig, SeatConfig
from actors.desktop.demonstrators import of_oracle
from actors.desktop.episode import Episode, PlayedEpisode
from actors.desktop.memo import BUNDLED, Memo, known
from actors.desktop.memo_file import TEXT_MOST, read
from actors.desktop.pool.desktops import BootedDesktop
from actors.desktop.pool.leased import LeasedDesktop
from actors.desktop.pool.pool import DesktopPool
from actors.desktop.recorder import EndState, Recorder
from actors.desktop.scene import DISAGREES, NOT_REMEMBERED, DesktopScene, Judged, RememberedScene
from actors.errors import AgentBrokeDesktop, DesktopFault
from apis.actions.gui import Action, Click, Exit, Hotkey, Wait
from apis.observation import Element, Observation, Window
from apis.prompts.compact import render_compact
from apis.tasks.verify.manifest import Manifest
from apis.tasks.verify.verify import TaskVerdict
from policy.base import MODEL
from policy.tokenizer import Tokenizer
from runtime.segments import SegmentStore
from tests.actors.desktop.offices import reservation

TASK = "file_manager/train/1"
ACTIONS: list[Action] = [Click(coordinates=(1, 2)), Hotkey(keys=("ctrl", "s")), Wait()]
NUMBERS = itertools.count(7)
SOLVED = (0, 1)  # by these actions, as their numbers


class FakeDesktop:
    """Shows what was done on it; a late one shows another thing once."""

    remembered = False

    def __init__(self, late_at: int = -1) -> None:
        self.done: list[Action] = []
        self.prepared = False
        self.late_at = late_at
        self.number = next(NUMBERS)  # of its window, which each desktop draws

    async def prepare(self) -> None:
        self.prepared = True

    async def observe(self) -> Observation:
        assert self.prepared
        title = "late" if len(self.done) == self.late_at else " ".join(str(ACTIONS.index(one)) for one in self.done)
        window = Window(number=self.number, wm_class="Pcmanfm", title=title, active=True)
        return Observation(windows=(window,), elements=(Element("icon", title, "", 0, 0, 9, 9),))

    async def act(self, action: Action, observation: Observation) -> tuple[str, bool | None]:
        assert observation == await self.observe()
        if isinstance(action, Exit):
            return "", action.success
        self.done.append(action)
        return f"did {ACTIONS.index(action)} as number {len(self.done)}", None

    async def picture(self) -> bytes:
        return f"{self.number} after {len(self.done)}".encode()  # as with a caret that blinks

    async def screenshot(self) -> bytes | None:
        return None

    async def reach_verdict(self) -> None:
        pass

    async def judged(self) -> Judged:
        won = tuple(ACTIONS.index(one) for one in self.done) == SOLVED
        return Judged(TaskVerdict(won, "yes" if won else "no"), "", EndState([], Manifest(), Manifest(), "/home"))


class Leases:
    """Gives desktops, each after a moment, and counts them."""

    def __init__(self, make: Callable[[], Any] = FakeDesktop) -> None:
        self.given: list[Any] = []
        self.make = make

    async def __call__(self) -> Any:
        await asyncio.sleep(0.001)
        self.given.append(self.make())
        return self.given[-1]


Trace = tuple[list[str], list[str], bool]


async def played(scene: Any, moves: Sequence[int]) -> Trace:
    """What a policy with these moves is shown, answered and judged."""
    try:
        return await _played(scene, moves)
    finally:
        if isinstance(scene, RememberedScene):
            scene.ended()


async def _played(scene: Any, moves: Sequence[int]) -> Trace:
    await scene.prepare()
    shown, answered = [], []
    for move in moves:
        now = await scene.observe()
        shown.append(render_compact("", [], now, None))
        answered.append((await scene.act(ACTIONS[move], now))[0])
    now = await scene.observe()
    shown.append(render_compact("", [], now, None))
    await scene.act(Exit(success=True), now)
    await scene.reach_verdict()
    return shown, answered, (await scene.judged()).verdict.success


def memo(folder: Path) -> Memo:
    return Memo("3/compact/1500/0/a", folder / "memo.parquet")


EPISODES = st.lists(st.lists(st.integers(0, 2), max_size=4), min_size=1, max_size=12)


@given(EPISODES)
def test_what_is_remembered_is_what_a_desktop_shows(episodes: list[list[int]]) -> None:
    async def both() -> None:
        kept, known = memo(Path("unused")), set[tuple[int, ...]]()
        for moves in episodes:
            leases = Leases()
            scene = RememberedScene(TASK, kept, leases)
            assert await played(scene, moves) == await played(FakeDesktop(), moves)
            assert len(leases.given) <= 1
            assert bool(leases.given) == (tuple(moves) not in known)
            known.add(tuple(moves))
        assert kept.contradicted == 0

    asyncio.run(both())


async def test_a_desktop_that_shows_another_thing_is_a_fault_and_its_line_is_dropped(tmp_path: Path) -> None:
    kept = memo(tmp_path)
    await played(RememberedScene(TASK, kept, Leases()), [0, 1])
    late = RememberedScene(TASK, kept, Leases(lambda: FakeDesktop(late_at=1)))
    with pytest.raises(DesktopFault) as fault:
        await played(late, [0, 2])
    assert (fault.value.cause, fault.value.culprit, kept.contradicted) == (DISAGREES, "memo", 1)
    again = Leases()
    assert await played(RememberedScene(TASK, kept, again), [0, 2]) == await played(FakeDesktop(), [0, 2])
    assert len(again.given) == 1


async def test_what_the_policy_has_seen_is_compared_where_its_line_was_dropped_meanwhile(tmp_path: Path) -> None:
    kept = memo(tmp_path)
    await played(RememberedScene(TASK, kept, Leases()), [0, 1])
    for actions in ([], [0]):  # before an action, and on the way to one
        scene = RememberedScene(TASK, kept, Leases(lambda: FakeDesktop(late_at=0)))
        await scene.prepare()
        for move in actions:
            await scene.act(ACTIONS[move], await scene.observe())
        shown = await scene.observe()
        kept.drop(kept.root(TASK), TASK, "seen")  # by another seat
        with pytest.raises(DesktopFault) as fault:
            await scene.act(ACTIONS[2], shown)
        assert fault.value.cause == DISAGREES
        await played(RememberedScene(TASK, kept, Leases()), [0, 1])


async def test_a_desktop_that_breaks_under_what_is_remembered_is_no_failure_of_the_policy(tmp_path: Path) -> None:
    kept = memo(tmp_path)
    await played(RememberedScene(TASK, kept, Leases()), [0])
    broken = Leases(lambda: Working(breaks=True))
    with pytest.raises(DesktopFault) as fault:
        await played(RememberedScene(TASK, kept, broken), [0, 1])
    assert fault.value.cause == DISAGREES
    with pytest.raises(AgentBrokeDesktop):  # now the action is carried out, and breaks the desktop itself
        await played(RememberedScene(TASK, kept, broken), [0, 1])


class Slow(FakeDesktop):
    """Refuses an action, and shows less than there is."""

    async def observe(self) -> Observation:
        return msgspec.structs.replace(await super().observe(), cut=True)

    async def act(self, action: Action, observation: Observation) -> tuple[str, bool | None]:
        await super().act(action, observation)
        return "Failed: calc did not answer within 5 s", None


async def test_what_a_slow_program_shows_and_answers_is_not_remembered(tmp_path: Path) -> None:
    kept = memo(tmp_path)
    scene = RememberedScene(TASK, kept, Leases(Slow))
    await scene.prepare()
    await scene.act(ACTIONS[0], await scene.observe())
    scene.ended()
    leases = Leases()
    assert await played(RememberedScene(TASK, kept, leases), [0, 1]) == await played(FakeDesktop(), [0, 1])
    assert (len(leases.given), kept.contradicted) == (1, 0)


async def test_what_is_larger_than_a_line_spoils_no_file(tmp_path: Path) -> None:
    kept = memo(tmp_path)
    kept.keep(kept.root(TASK), TASK, result="x" * (TEXT_MOST + 1))
    kept.keep(kept.after(kept.root(TASK), "a"), TASK, result="x")
    await kept.close()
    assert [line.result for line in read(tmp_path / "memo.parquet")] == ["x"]


async def test_where_no_desktop_may_be_booted_an_unknown_step_is_a_fault_that_is_named(tmp_path: Path) -> None:
    kept = memo(tmp_path)
    await played(RememberedScene(TASK, kept, Leases()), SOLVED)

    async def none() -> Any:
        raise DesktopFault(NOT_REMEMBERED, "", "memo")

    assert (await played(RememberedScene(TASK, kept, none), SOLVED))[2]
    with pytest.raises(DesktopFault) as fault:
        await played(RememberedScene(TASK, kept, none), [0, 0])
    assert fault.value.cause == NOT_REMEMBERED


class Working(FakeDesktop):
    """Takes a moment for everything, or breaks under an action."""

    def __init__(self, breaks: bool = False) -> None:
        super().__init__()
        self.breaks = breaks

    async def prepare(self) -> None:
        await asyncio.sleep(0.001)
        await super().prepare()

    async def observe(self) -> Observation:
        await asyncio.sleep(0.001)
        return await super().observe()

    async def act(self, action: Action, observation: Observation) -> tuple[str, bool | None]:
        await asyncio.sleep(0.001)
        if self.breaks:
            raise AgentBrokeDesktop("session_ended", "it ended")
        return await super().act(action, observation)

    async def judged(self) -> Judged:
        await asyncio.sleep(0.001)
        return await super().judged()


async def test_seats_at_equal_moments_take_one_desktop_for_all(tmp_path: Path) -> None:
    kept, leases = memo(tmp_path), Leases(Working)
    moves = [SOLVED, SOLVED, SOLVED, (0, 2), SOLVED, (0, 2), SOLVED, (0,)]
    traces = await asyncio.gather(*(played(RememberedScene(TASK, kept, leases), each) for each in moves))
    assert traces == [await played(FakeDesktop(), each) for each in moves]
    assert len(leases.given) == len({*moves})
    assert kept.contradicted == 0


async def test_a_seat_goes_on_by_itself_where_the_awaited_desktop_breaks(tmp_path: Path) -> None:
    kept, leases = memo(tmp_path), Leases(lambda: Working(breaks=not leases.given))
    scenes = [RememberedScene(TASK, kept, leases) for _ in range(3)]
    first, *rest = await asyncio.gather(*(played(scene, SOLVED) for scene in scenes), return_exceptions=True)
    assert isinstance(first, AgentBrokeDesktop)
    assert rest == [await played(FakeDesktop(), SOLVED)] * 2


async def seen_by_eye(scene: RememberedScene) -> list[bytes]:
    """The pictures of an episode of two actions."""
    try:
        await scene.prepare()
        pictures = []
        for move in SOLVED:
            now = await scene.observe()
            pictures.append(await scene.picture())
            await scene.act(ACTIONS[move], now)
        return pictures
    finally:
        scene.ended()


async def test_what_a_model_sees_is_one_desktops_picture_and_is_remembered(tmp_path: Path) -> None:
    kept, leases = memo(tmp_path), Leases(Working)
    await played(RememberedScene(TASK, kept, leases), [])  # without eyes: no picture is remembered
    scenes = [RememberedScene(TASK, kept, leases) for _ in range(4)]
    first, *rest = await asyncio.gather(*(seen_by_eye(scene) for scene in scenes))
    assert len(leases.given) == 2
    assert first == [f"{leases.given[1].number} after {n}".encode() for n in (0, 1)]
    assert rest == [first] * 3
    await kept.close()
    other = await Memo.open(kept.scope, tmp_path / "memo.parquet")
    scene = RememberedScene(TASK, other, leases)
    assert await seen_by_eye(scene) == first
    assert scene.remembered
    assert len(leases.given) == 2
    assert other.contradicted == 0


async def test_another_process_knows_what_was_remembered(tmp_path: Path) -> None:
    kept = memo(tmp_path)
    await played(RememberedScene(TASK, kept, Leases()), SOLVED)
    await kept.close()
    other = await Memo.open(kept.scope, tmp_path / "memo.parquet")
    leases = Leases()
    assert (await played(RememberedScene(TASK, other, leases), SOLVED))[2]
    assert not leases.given
    changed = await Memo.open("3/compact/1500/0/b", tmp_path / "memo.parquet")
    assert changed.seen(changed.root(TASK)) is None  # other sources of the guest, or of verifiers
    await played(RememberedScene(TASK, changed, Leases(lambda: FakeDesktop(late_at=0))), SOLVED)
    await changed.close()
    assert {line.scope for line in read(tmp_path / "memo.parquet")} == {changed.scope}
    await kept.close()
    elsewhere = await Memo.open("3/compact/1500/1/a", tmp_path / "memo.parquet")
    assert elsewhere.seen(elsewhere.root(TASK)) is None  # another image
    only = await Memo.open("3/compact/1500/none/a", tmp_path / "memo.parquet", only=True)
    assert only.seen(only.root(TASK)) is not None  # which has no image of its own; the bundled lines are more
    none = tmp_path / "none.parquet"
    here = (await Memo.open("3/compact/1500/none/a", none, only=True)).scope
    assert here == read(BUNDLED)[0].scope
    assert known(here, none).startswith(f"{len(read(BUNDLED))} of ")
    assert known(kept.scope, none).endswith("nothing is remembered at the beginning")


SEAT = SeatConfig(screenshots="none")


class Table:
    """A pool, a memo and who plays on them."""

    def __init__(self, pool: DesktopPool, kept: Memo, folder: Path) -> None:
        self.pool, self.kept = pool, kept
        self.recorder = Recorder(SegmentStore(folder, "test"))
        self.tokenizer = Tokenizer.load(MODEL)

    async def play(self, task: str, max_turns: int = 12) -> tuple[PlayedEpisode, int]:
        """The episode of the task's oracle, and how many desktops it took."""
        work = reservation(task, max_turns=max_turns)
        leased: list[BootedDesktop] = []

        async def lease() -> DesktopScene:
            leased.append(await self.pool.acquire(60.0))
            return DesktopScene(work, LeasedDesktop(leased[-1]), SEAT)

        try:
            episode = Episode(
                work,
                RememberedScene(task, self.kept, lease),
                answerer=of_oracle(work, self.tokenizer, "compact", 0.0),
                recorder=self.recorder,
                config=SEAT,
                enter=lambda stage: None,
            )
            return await episode.play(), len(leased)
        finally:
            for one in leased:
                self.pool.retire(one)


@pytest_asyncio.fixture
async def table(tmp_path: Path, state_dir: str) -> AsyncIterator[Table]:
    desktops = DesktopsConfig(provider=SandboxConfig(state_dir=state_dir), pool=PoolConfig(warm_pool=0))
    pool = await DesktopPool.open(desktops, tmp_path / "episodes")
    made = Table(pool, Memo(memos.scope(SEAT, desktops), tmp_path / "memo.parquet"), tmp_path / "segments")
    yield made
    await made.recorder.close()
    await pool.close()


@pytest.mark.parametrize("task", ["text_editor/train/100", "note_to_terminal/train/7"])
async def test_an_episode_is_played_again_without_a_desktop_and_goes_on_with_one(table: Table, task: str) -> None:
    first, desktops = await table.play(task)
    assert first.outcome.success
    assert desktops == 1
    assert not any(step.remembered for step in first.steps)
    again, desktops = await table.play(task)
    assert again.outcome == first.outcome
    assert desktops == 0
    assert all(step.remembered for step in again.steps)
    assert [step.line for step in again.steps] == [step.line for step in first.steps]
    last = list(table.kept._lines)[-1]
    del table.kept._lines[last]  # what the last action led to: another desktop is led there, and agrees on the way
    more, desktops = await table.play(task)
    assert more.outcome == first.outcome
    assert desktops == 1
    assert table.kept.contradicted == 0
    assert [step.remembered for step in more.steps].count(False) in (1, 2)
