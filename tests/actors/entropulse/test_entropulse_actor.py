"""The supervisor with a real ledger, and a seat, a learner and a sampler that pretend."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from actors.entropulse import actor as entropulse
from actors.entropulse.actor import EntropulseActor
from actors.entropulse.config import EntropulseConfig, EntropulseSettings, EvaluationConfig
from actors.entropulse.pins import PinnedFolders
from actors.learner.messages import GetLearnerState, LearnerState
from actors.replay.actor import ReplayActor
from actors.replay.messages import (
    Batch,
    Checkpointed,
    Commit,
    EvalFigures,
    Figures,
    GetFigures,
    Lane,
    LearnerResumed,
    Outcome,
    Phase,
    PhaseRef,
    Reservation,
    Reserve,
    Serving,
    Take,
    Trained,
    WaitFigures,
)
from actors.sampler.messages import Pin, Unpin
from runtime.actor import Actor, handles
from runtime.errors import StoreError
from runtime.logs_read import read_logs
from runtime.message import Done, Request, Version
from runtime.system import ActorSpec, ActorSystem
from tests.actors.replay.ledger_tools import Play, step
from tests.actors.replay.ledger_tools import settings as ledger_settings

SETTINGS = EntropulseSettings(
    phases=EntropulseConfig(bc_steps=2, total_rl_steps=2, rl_steps=1, pulses=1, pulse_steps=1),
    evaluation=EvaluationConfig(greedy=True),
    eval_tasks=["e0", "e1"],
    task_set="e",
    demos=2,
    demo_attempts=8,
    max_new_tokens=16,
    samplers=["sampler/0"],
)


class Crash(Request[Done]):
    """End the supervisor as a defect would."""


class Mortal(EntropulseActor):
    """A supervisor that can be made to crash."""

    @handles(Crash)
    async def crash(self, _msg: Crash) -> Done:
        raise RuntimeError("crash")


class Seat(Actor):
    """Every second training episode succeeds, everything else always."""

    async def on_start(self) -> None:
        self.ctx.spawn(self.live(), "live")

    async def live(self) -> None:
        replay, number = self.ctx.ref("replay"), 0
        while True:
            number += 1
            wish = Reserve(seat=self.ctx.name, request_id=f"{self.ctx.name}.{number}", wait_s=5.0)
            work = await replay.ask(wish, timeout_s=15)
            if not isinstance(work, Reservation):
                if work.final:
                    return
                continue
            figures = await replay.ask(GetFigures(), timeout_s=15)
            version = work.pin or figures.served
            success = work.lane is not Lane.TRAIN or work.slot == 0
            played = step(
                None if work.lane is Lane.DEMO else str(version), surprisal=0.5**version.step if version else 0
            )
            outcome = Outcome(success=success, reason="verified")
            commit = Commit(token=work.token, seat="s", outcome=outcome, steps=[played], wall_s=1.0, busy_s=1.0)
            await replay.ask(commit, timeout_s=15)


class Learner(Actor):
    """Makes versions out of batches, exports each, tells the ledger that the sampler serves it."""

    async def on_start(self) -> None:
        await self.export(Version(lineage=0, step=0))
        self.ctx.spawn(self.live(), "live")

    async def export(self, version: Version) -> None:
        location = self.ctx.run_dir / "weights" / str(version)
        location.mkdir(parents=True)
        (location / "model.safetensors").write_text(str(version))
        self.version, self.location = version, location
        await self.ctx.ref("replay").ask(Serving(sampler="sampler/0", version=self.version), timeout_s=15)

    async def live(self) -> None:
        replay, number = self.ctx.ref("replay"), 0
        while True:
            number += 1
            wish = Take(learner="learner", request_id=str(number), trained=self.version, wait_s=5.0)
            taken = await replay.ask(wish, timeout_s=15)
            if isinstance(taken, Batch):
                made = Version(lineage=0, step=self.version.step + 1)
                await replay.ask(Trained(lease=taken.lease, version=made, figures={}), timeout_s=15)
                await self.export(made)
            elif taken.checkpoint:
                await replay.ask(Checkpointed(version=self.version, location="c"), timeout_s=15)
            elif taken.final:
                return

    @handles(GetLearnerState, concurrent=True)
    async def state(self, _msg: GetLearnerState) -> LearnerState:
        return LearnerState(version=self.version, location=str(self.location), busy_s=0.0)


LAST_STEP = 10  # of a run of 2 steps of cloning and 8 of reinforcement learning


class Patient(Learner):
    """Ends its last step only once a round beside training is open, however busy the machine is."""

    async def export(self, version: Version) -> None:
        await super().export(version)
        replay = self.ctx.ref("replay")
        while self.version.step == LAST_STEP - 1:
            figures = await replay.ask(GetFigures(), timeout_s=15)
            if any(found.round.startswith("rl") for found in figures.evals):
                return
            await asyncio.sleep(0.01)


class Die(Request[Done]):
    """Lose what was made since the checkpoint, and go on from there."""


class Relapsing(Learner):
    """Falls back to its checkpoint when it is told to; the answer comes once the ledger knows."""

    async def on_start(self) -> None:
        self.saved = Version(lineage=0, step=0)
        self.relapse: asyncio.Event | None = None
        await super().on_start()

    async def live(self) -> None:
        replay, number = self.ctx.ref("replay"), 0
        while True:
            if self.relapse is not None and not self.relapse.is_set():
                again = Version(lineage=self.version.lineage + 1, step=self.saved.step)
                await replay.ask(LearnerResumed(version=again, parent=self.saved), timeout_s=15)
                await self.export(again)
                self.relapse.set()
            number += 1
            wish = Take(learner="learner", request_id=f"r{number}", trained=self.version, wait_s=0.05)
            taken = await replay.ask(wish, timeout_s=15)
            if isinstance(taken, Batch):
                made = Version(lineage=self.version.lineage, step=self.version.step + 1)
                await replay.ask(Trained(lease=taken.lease, version=made, figures={}), timeout_s=15)
                await self.export(made)
            elif taken.checkpoint:
                self.saved = self.version
                await replay.ask(Checkpointed(version=self.version, location="c"), timeout_s=15)
            elif taken.final:
                return

    @handles(Die, concurrent=True)
    async def die(self, _msg: Die) -> Done:
        self.relapse = asyncio.Event()
        await asyncio.wait_for(self.relapse.wait(), 15)
        return Done()


class GetPins(Request[LearnerState]):
    """Which pins there were, as JSON in `location`."""


class Sampler(Actor):
    """Checks that what is pinned is there, and keeps a record."""

    async def on_start(self) -> None:
        self.pinned: Counter[str] = Counter()
        self.unpinned: Counter[str] = Counter()

    @handles(Pin)
    async def pin(self, msg: Pin) -> Done:
        assert (Path(msg.location) / "model.safetensors").read_text() == str(msg.version)
        self.pinned[str(msg.version)] += 1
        return Done()

    @handles(Unpin)
    async def unpin(self, msg: Unpin) -> Done:
        self.unpinned[str(msg.version)] += 1
        return Done()

    @handles(GetPins)
    async def pins(self, _msg: GetPins) -> LearnerState:
        record = msgspec.json.encode([self.pinned, self.unpinned]).decode()
        return LearnerState(version=Version(lineage=0, step=0), location=record, busy_s=0.0)


class Slow(Sampler):
    """While it loads the first weights that RL made, these are lost."""

    async def on_start(self) -> None:
        await super().on_start()
        self.lost = ""

    @handles(Pin)
    async def pin(self, msg: Pin) -> Done:
        if not self.lost and msg.version.step > SETTINGS.phases.bc_steps:
            self.lost = str(msg.version)
            await self.ctx.ref("learner").ask(Die(), timeout_s=20)
        return await super().pin(msg)


async def test_a_round_whose_weights_are_lost_while_they_are_pinned_opens_on_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entropulse, "LOOK_S", 0.01)
    phases = msgspec.structs.replace(SETTINGS.phases, total_rl_steps=6, rl_steps=0, pulses=0)
    beside = msgspec.structs.replace(SETTINGS, phases=phases, evaluation=EvaluationConfig(every_steps=1))
    async with ActorSystem(tmp_path) as system:
        ledger = ledger_settings(demos=2, incarnation="test", rl_steps=6)
        await system.spawn(ActorSpec(name="replay", factory=ReplayActor, config=ledger))
        await system.spawn(
            ActorSpec(name="sampler/0", factory=Slow),
            ActorSpec(name="learner", factory=Relapsing),
            ActorSpec(name="entropulse", factory=EntropulseActor, config=beside),
            *(ActorSpec(name=f"desktop/{n}", factory=Seat) for n in range(2)),
        )
        figures = await until_done(system, crashes_in=())
    rounds = {found.round: found.version for found in figures.evals}
    assert all(version.lineage == 1 for name, version in rounds.items() if name != "after_bc"), rounds
    assert any("a resume has abandoned" in line["cause"] for line in read_logs(tmp_path, event="supervisor_waits"))


async def test_a_whole_run_with_a_supervisor_that_keeps_crashing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entropulse, "LOOK_S", 0.01)
    config = ledger_settings(demos=2, incarnation="test", rl_steps=SETTINGS.phases.rl_steps_in_all)
    async with ActorSystem(tmp_path) as system:
        await system.spawn(ActorSpec(name="replay", factory=ReplayActor, config=config))
        await system.spawn(
            ActorSpec(name="sampler/0", factory=Sampler),
            ActorSpec(name="learner", factory=Learner),
            ActorSpec(name="entropulse", factory=Mortal, config=SETTINGS),
            *(ActorSpec(name=f"desktop/{n}", factory=Seat) for n in range(2)),
        )
        figures = await until_done(system)
        record = await system.ref("sampler/0").ask(GetPins(), timeout_s=5)
    assert figures.steps == {"bc": 2, "rl": 2, "pulse": 1}
    rounds = {found.round: str(found.version) for found in figures.evals}
    assert rounds == {"after_bc": "0.2", "after_bc.greedy": "0.2", "final": "0.5", "final.greedy": "0.5"}
    assert all(found.closed and found.successes == 2 for found in figures.evals)
    assert len({found.task_set for found in figures.evals}) == 1
    pinned, unpinned = msgspec.json.decode(record.location)
    assert set(pinned) == {"0.2", "0.5"}
    assert "0.2" in unpinned, "the round is over"
    kept = sorted((tmp_path / "kept").glob("*/model.safetensors"))
    assert [path.read_text() for path in kept] == ["0.2", "0.5"], "after cloning and at the end"
    changes = list(read_logs(tmp_path, event="phase_changed"))
    assert [line["phase"] for line in changes] == ["bc", "rl", "pulse", "rl", "done"]
    assert [line["cause"] for line in changes] == [
        "demos_complete", "bc_complete", "counted", "pulse_complete", "counted",
    ]  # fmt: skip


class Script(Actor):
    """A ledger in RL with one open round, which stands back while `waits` says so."""

    figures: ClassVar[Figures]
    looked: ClassVar[asyncio.Queue[None]]

    @handles(WaitFigures, concurrent=True)
    async def wait(self, _msg: WaitFigures) -> Figures:
        self.looked.put_nowait(None)
        await asyncio.sleep(0.01)
        return self.figures

    @classmethod
    async def until(cls, looks: int) -> None:
        """Return once the supervisor has looked so often from now on."""
        cls.looked = asyncio.Queue()
        for _ in range(looks):
            await cls.looked.get()

    @handles(GetFigures, concurrent=True)
    async def get(self, _msg: GetFigures) -> Figures:
        return self.figures


class Ordered(Sampler):
    """Remembers the order, too."""

    told: ClassVar[list[str]] = []

    @handles(Pin)
    async def pin(self, msg: Pin) -> Done:
        self.told.append(f"pin {msg.version}")
        return await super().pin(msg)

    @handles(Unpin)
    async def unpin(self, msg: Unpin) -> Done:
        self.told.append(f"unpin {msg.version}")
        return await super().unpin(msg)


async def test_pins_of_a_round_are_let_go_while_it_stands_back_and_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entropulse, "LOOK_S", 0.01)
    (tmp_path / "ledger").mkdir()
    version = Version(lineage=0, step=2)
    round_ = EvalFigures(
        round="after_bc", version=version, temperature=1.0, tasks=2, played=0, successes=0, feasible=2, faults=0
    )
    playing = msgspec.structs.replace(
        Play(tmp_path / "ledger").figures(), phase=PhaseRef(phase=Phase.RL, index=2), phase_limit=2, phase_steps=0,
        steps={"bc": 2}, stays={"bc": 1, "rl": 1}, evals=[round_],
    )  # fmt: skip
    export = tmp_path / "weights"
    export.mkdir()
    (export / "model.safetensors").write_text(str(version))
    folder = PinnedFolders(tmp_path).pin(version, export)

    async def seen_with(figures: Figures) -> list[str]:
        """What samplers were told until the supervisor had looked twice at `figures`."""
        Script.figures = figures
        async with asyncio.timeout(20):
            await Script.until(3)
        told, Ordered.told = Ordered.told, []
        return told

    Script.figures, Script.looked, Ordered.told = playing, asyncio.Queue(), []
    async with ActorSystem(tmp_path) as system:
        await system.spawn(
            ActorSpec(name="replay", factory=Script),
            ActorSpec(name="sampler/0", factory=Ordered),
            ActorSpec(name="entropulse", factory=Mortal, config=SETTINGS),
        )
        waiting = msgspec.structs.replace(playing, rounds_wait=True)
        assert await seen_with(playing) == ["pin 0.2"]
        assert await seen_with(waiting) == ["unpin 0.2"]
        with pytest.raises(Exception, match="crash"):
            await system.ref("entropulse").ask(Crash(), timeout_s=5)
        assert await seen_with(waiting) == ["unpin 0.2"], "its successor can't know that they were told"
        assert folder.exists(), "the round needs it later"
        assert await seen_with(playing) == ["pin 0.2"]
        assert await seen_with(waiting) == ["unpin 0.2"]
        closed = msgspec.structs.replace(round_, closed=True)
        assert await seen_with(msgspec.structs.replace(waiting, evals=[closed])) == ["unpin 0.2"]
        assert not folder.exists()


@pytest.mark.parametrize("apart", [True, False])
async def test_engines_of_one_version_are_told_the_oldest_open_rounds_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, apart: bool
) -> None:
    monkeypatch.setattr(entropulse, "LOOK_S", 0.01)
    (tmp_path / "ledger").mkdir()
    export = tmp_path / "weights"
    export.mkdir()
    versions = [Version(lineage=0, step=step) for step in (2, 4)]
    for version in versions:
        (export / "model.safetensors").write_text(str(version))
        folder = tmp_path / "pinned" / str(version)
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_text(str(version))
    rounds = [
        EvalFigures(
            round=f"round {version}", version=version, temperature=1.0, tasks=2, played=0, successes=0, feasible=2,
            faults=0,
        )
        for version in versions
    ]  # fmt: skip
    ends = msgspec.structs.replace(
        Play(tmp_path / "ledger").figures(), phase=PhaseRef(phase=Phase.PULSE, index=3), phase_limit=9, phase_steps=0,
        steps={"bc": 2, "rl": 1}, stays={"bc": 1, "rl": 1, "pulse": 1}, evals=rounds,
    )  # fmt: skip
    Script.figures, Script.looked, Ordered.told = ends, asyncio.Queue(), []
    async with ActorSystem(tmp_path) as system:
        await system.spawn(
            ActorSpec(name="replay", factory=Script),
            ActorSpec(name="sampler/0", factory=Ordered),
            ActorSpec(
                name="entropulse", factory=EntropulseActor, config=msgspec.structs.replace(SETTINGS, apart=apart)
            ),
        )
        async with asyncio.timeout(20):
            await Script.until(3)
        assert Ordered.told == (["unpin 0.4", "pin 0.2"] if apart else ["pin 0.4", "pin 0.2"])
        Ordered.told = []
        closed = msgspec.structs.replace(rounds[0], closed=True)
        Script.figures = msgspec.structs.replace(ends, evals=[closed, rounds[1]])
        async with asyncio.timeout(20):
            await Script.until(3)
        assert Ordered.told == (["pin 0.4", "unpin 0.2"] if apart else ["unpin 0.2"])


async def test_every_round_beside_training_has_its_greedy_twin_on_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entropulse, "LOOK_S", 0.01)
    beside = msgspec.structs.replace(
        SETTINGS,
        phases=msgspec.structs.replace(SETTINGS.phases, total_rl_steps=8, rl_steps=0, pulses=0),
        evaluation=EvaluationConfig(greedy=True, every_steps=1),
    )
    async with ActorSystem(tmp_path) as system:
        replay = ActorSpec(
            name="replay", factory=ReplayActor, config=ledger_settings(demos=2, incarnation="test", rl_steps=8)
        )
        await system.spawn(replay)
        half = tmp_path / "pinned" / ".0.9.part"  # of a supervisor that was killed
        half.mkdir(parents=True)
        await system.spawn(
            ActorSpec(name="sampler/0", factory=Sampler),
            ActorSpec(name="learner", factory=Patient),
            ActorSpec(name="entropulse", factory=EntropulseActor, config=beside),
            *(ActorSpec(name=f"desktop/{n}", factory=Seat) for n in range(2)),
        )
        figures = await until_done(system, crashes_in=())
    assert not half.exists()
    versions = {found.round: found.version for found in figures.evals}
    names = {name.removesuffix(".greedy") for name in versions}
    assert any(name.startswith("rl") for name in names)
    assert all(versions[name] == versions[f"{name}.greedy"] for name in names), versions


PLATEAU = {"total_rl_steps": 240, "rl_steps": 0, "min_stay": 4, "window": 4, "patience": 1}


@pytest.mark.parametrize(
    ("changed", "phases", "cause"),
    [
        (PLATEAU, ["bc", "rl", "pulse", "rl", "done"], "plateau"),
        (PLATEAU | {"pulse": "reference_reset"}, ["bc", "rl", "rl", "done"], "plateau"),
        ({"pulse": "reference_reset"}, ["bc", "rl", "rl", "done"], "counted"),
        ({"pulse": "none"}, ["bc", "rl", "done"], "counted"),
    ],
)
async def test_every_way_into_and_around_a_pulse_with_a_supervisor_that_keeps_crashing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], phases: list[str], cause: str
) -> None:
    monkeypatch.setattr(entropulse, "LOOK_S", 0.01)
    arm = msgspec.structs.replace(
        SETTINGS,
        phases=msgspec.structs.replace(SETTINGS.phases, **changed),
        evaluation=EvaluationConfig(enabled=False),
    )
    async with ActorSystem(tmp_path) as system:
        replay = ActorSpec(
            name="replay",
            factory=ReplayActor,
            config=ledger_settings(demos=2, incarnation="test", rl_steps=arm.phases.rl_steps_in_all),
        )
        await system.spawn(replay)
        await system.spawn(
            ActorSpec(name="sampler/0", factory=Sampler),
            ActorSpec(name="learner", factory=Learner),
            ActorSpec(name="entropulse", factory=Mortal, config=arm),
            *(ActorSpec(name=f"desktop/{n}", factory=Seat) for n in range(2)),
        )
        figures = await until_done(system)
    changes = list(read_logs(tmp_path, event="phase_changed"))
    assert [line["phase"] for line in changes] == phases
    assert changes[2]["cause"] == cause
    made = sum(figures.steps[phase] for phase in figures.steps if phase != "bc")
    assert made == arm.phases.total_rl_steps + arm.phases.pulse_steps
    assert figures.evidence is not None
    shown = list(read_logs(tmp_path, event="rl_evidence"))
    assert [line["rl_step"] for line in shown] == list(range(1, figures.steps["rl"] + 1))


async def until_done(system: ActorSystem, *, crashes_in: tuple[Phase, ...] = (Phase.BC, Phase.RL)) -> Figures:
    """Crash the supervisor once in each of those phases on the way, or later where one went by between two looks."""
    seen, crashes, order = -1, list(crashes_in), list(Phase)
    async with asyncio.timeout(110):
        while True:
            figures = await system.ref("replay").ask(WaitFigures(since=seen, wait_s=5), timeout_s=15)
            seen = figures.revision
            if crashes and order.index(figures.phase.phase) >= order.index(crashes[0]):
                crashes.pop(0)
                with pytest.raises(Exception, match="crash"):
                    await system.ref("entropulse").ask(Crash(), timeout_s=5)
            if figures.phase.phase is Phase.DONE:
                assert not crashes
                return figures


def test_pinned_folders_outlive_the_export(tmp_path: Path) -> None:
    pins, version = PinnedFolders(tmp_path), Version(lineage=0, step=3)
    export = tmp_path / "weights" / "0.3"
    with pytest.raises(StoreError):
        pins.pin(version, export)
    export.mkdir(parents=True)
    (export / "model.safetensors").write_text("weights")
    location = pins.pin(version, export)
    assert pins.pin(version, export) == location
    for path in export.iterdir():
        path.unlink()
    export.rmdir()
    assert (location / "model.safetensors").read_text() == "weights"
    kept = pins.keep(version, location)
    half = [location.with_name(".0.4.part"), kept.with_name(".0.5.part")]
    for folder in half:
        folder.mkdir()
    pins.clear()
    assert not any(folder.exists() for folder in half), "of a supervisor that was killed"
    assert pins.surplus([version]) == []
    assert pins.surplus([]) == [version]
    pins.release(version)
    assert not location.exists()
    pins.forget([version])
    assert (kept / "model.safetensors").read_text() == "weights"
    pins.forget([])
    assert not kept.exists()
