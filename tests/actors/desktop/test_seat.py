"""A seat among its peers: a ledger that does not answer, a host without desktops, a host process that is stopped."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
import pytest

from actors.desktop import actor
from actors.desktop.actor import DesktopSeat, Drain
from actors.desktop.answers import Prompt, SampledAnswers
from actors.desktop.config import DesktopsConfig, PoolConfig, SandboxConfig, ScreenConfig, SeatConfig
from actors.desktop.demonstrators import of_oracle
from actors.errors import Deferred, DesktopFault
from actors.replay.config import LedgerSettings, ReplayConfig
from actors.replay.messages import (
    DEFERRED,
    GetFigures,
    Lane,
    NoWork,
    Phase,
    PhaseRef,
    Release,
    Reservation,
    Reserve,
    Sampling,
)
from actors.sampler.messages import Generate, Generated
from actors.settings import DemosConfig
from apis.observation import Observation
from policy.base import MODEL
from policy.tokenizer import Tokenizer
from runtime.actor import Actor, handles
from runtime.logs.reader import read_logs
from runtime.messaging.message import Done
from runtime.supervision import QuarantinePolicy
from runtime.system import ActorSpec, ActorSystem, HostSpec, RestartPolicy
from tests.actors.desktop.offices import reservation
from tests.heard import until
from tests.policy.chat_models import CHATML, write_tokenizer

SOON = QuarantinePolicy(faults_in_a_row=2, first_probe_s=0.2, longest_probe_s=0.5)
SEAT = "actors.desktop.actor:DesktopController"
TASK = "text_editor/train/100"


def lines(run_dir: Path, event: str) -> list[dict[str, Any]]:
    return list(read_logs(run_dir, event=event))


def seat_config(state_dir: str, *, spares: int = 0, template: str = "") -> DesktopSeat:
    return DesktopSeat(
        seat=SeatConfig(screenshots="none", lease_timeout_s=1.0, quarantine=SOON),
        desktops=DesktopsConfig(
            provider=SandboxConfig(state_dir=state_dir),
            pool=PoolConfig(warm_pool=spares, first_backoff_s=0.05, longest_backoff_s=0.2, quarantine=SOON),
            screen=ScreenConfig(home_template=template),
        ),
        model=str(MODEL),
        samplers=[],
    )


async def test_a_seat_that_is_starting_says_so_and_takes_a_new_count_of_seats(state_dir: str) -> None:
    seat = actor.DesktopController(seat_config(state_dir))
    assert seat.doing() == "starting"
    await seat.on_config(msgspec.structs.replace(seat.config, fit_seats=3))
    assert seat.config.fit_seats == 3
    counts = list[int]()
    seat._pool = SimpleNamespace(fit=lambda _, count: counts.append(count))
    for count in (3, 2, 0, 0):  # the same count, too: the pool's may be of seats that did not come to stay
        await seat.on_config(msgspec.structs.replace(seat.config, fit_seats=count))
    assert counts == [3, 2, 0]


class Ledger(Actor):
    """Counts wishes; while `held`, it answers none and its mailbox fills up."""

    asked = 0
    held: asyncio.Event

    async def on_start(self) -> None:
        type(self).asked = 0
        type(self).held = asyncio.Event()

    @handles(Reserve)
    async def reserve(self, msg: Reserve) -> NoWork:
        """No work, after a while."""
        type(self).asked += 1
        await asyncio.wait_for(type(self).held.wait(), 60)
        await asyncio.sleep(0.1)
        return NoWork(final=False)


async def test_a_seat_that_is_to_leave_waits_for_the_answer_to_its_request_and_asks_no_more(tmp_path, state_dir):
    async with ActorSystem(tmp_path) as system:
        await system.spawn(ActorSpec(name="replay", factory=Ledger))
        await system.spawn(ActorSpec(name="desktop/0", factory=SEAT, config=seat_config(state_dir)))
        await until(lambda: Ledger.asked == 1)
        draining = asyncio.ensure_future(system.ref("desktop/0").ask(Drain(), timeout_s=30))
        await asyncio.sleep(0.2)
        assert not draining.done()  # what the ledger may answer with would be lost
        Ledger.held.set()
        await draining
        await asyncio.sleep(0.3)
        assert Ledger.asked == 1


async def test_a_full_ledger_is_named_and_the_seat_goes_on(tmp_path, state_dir, monkeypatch):
    monkeypatch.setattr(actor, "RESERVE_WAIT_S", 2.0)
    monkeypatch.setattr(actor, "RESERVE_MARGIN_S", 1.0)
    monkeypatch.setattr(actor, "LEDGER_BACK_S", 0.1)
    async with ActorSystem(tmp_path) as system:
        await system.spawn(ActorSpec(name="replay", factory=Ledger, mailbox=1))
        config = seat_config(state_dir)
        await system.spawn(*(ActorSpec(name=f"desktop/{n}", factory=SEAT, config=config) for n in range(3)))
        full = (await until(lambda: lines(tmp_path, "mailbox_full")))[0]
        assert (full["name"], full["message"]) == ("replay", "Reserve")
        assert full["sender"].startswith("desktop/")
        pushed = await until(lambda: [one for one in lines(tmp_path, "ledger_silent") if "MailboxFull" in one["cause"]])
        assert pushed[0]["what"] == "Reserve"
        before = Ledger.asked
        assert len(lines(tmp_path, "ledger_silent")) <= 3, "one line for each seat's silence"
        Ledger.held.set()
        await until(lambda: Ledger.asked > before + 3)
        assert all(status.restarts == 0 for status in await system.statuses())


async def test_while_the_host_rests_no_work_is_taken(tmp_path, state_dir):
    template = tmp_path / "home"
    async with ActorSystem(tmp_path / "run") as system:
        await system.spawn(ActorSpec(name="replay", factory=Ledger))
        Ledger.held.set()
        config = seat_config(state_dir, spares=1, template=str(template))
        await system.spawn(ActorSpec(name="desktop/0", factory=SEAT, config=config))
        (rests,) = await until(lambda: lines(tmp_path / "run", "host_rests"))
        assert rests["cause"] == "sandbox_refused"

        async def rests_there() -> bool:
            return ("desktop/0", "resting (host quarantined)") in [(s.name, s.doing) for s in await system.statuses()]

        await until(rests_there)
        asked = Ledger.asked
        await asyncio.sleep(0.5)
        assert Ledger.asked == asked
        template.mkdir()
        await until(lambda: lines(tmp_path / "run", "host_let_back"))
        await until(lambda: Ledger.asked > asked)


def reserved(token: int = 1, lane: Lane = Lane.TRAIN) -> Reservation:
    """An episode in RL."""
    of_rl = PhaseRef(phase=Phase.RL, index=1)
    few = Sampling(temperature=1.0, max_new_tokens=8)
    return reservation(TASK, token=token, lane=lane, group="1", seed=7, sampling=few, phase=of_rl)


class Poor(Actor):
    """A sampler that fails at its first request, where it is asked once, and else never comes to an end."""

    config: bool

    @handles(Generate)
    async def generate(self, msg: Generate) -> Generated:
        """Fail, or wait."""
        if not self.config:
            raise ZeroDivisionError("a defect")
        await asyncio.wait_for(asyncio.Event().wait(), 60)
        raise AssertionError


@pytest.mark.parametrize("full", [True, False])
async def test_a_sampler_that_is_full_or_fails_is_a_fault_that_names_it(tmp_path, full: bool):
    async with ActorSystem(tmp_path) as system:
        await system.spawn(
            ActorSpec(name="sampler/0", factory=Poor, config=full, mailbox=1 if full else 9, stop_timeout_s=1.0)
        )
        answers = SampledAnswers([system.ref("sampler/0", "desktop/0")], Tokenizer.load(MODEL), reserved(), "g1.0", 1.5)
        asks = [
            answers.answer(step, Prompt(user="x"), Observation((), ()), [], None) for step in range(3 if full else 1)
        ]
        found = await asyncio.gather(*asks, return_exceptions=True)
        assert all(isinstance(error, DesktopFault) and error.cause == "sampler_unavailable" for error in found), found
        assert any(("mailbox of sampler/0 stayed full" if full else "a defect") in str(error) for error in found)
        full_lines = [(line["name"], line["sender"], line["message"]) for line in lines(tmp_path, "mailbox_full")]
        assert full_lines == [("sampler/0", "desktop/0", "Generate")] * full


@pytest.mark.parametrize("answers", ["sampled", "demonstrated"])
async def test_a_prompt_that_the_chat_template_refuses_is_a_fault(tmp_path: Path, answers: str) -> None:
    picky = "{% if 'stop' in messages[-1].content %}{{ raise_exception('not that') }}{% endif %}"
    write_tokenizer(tmp_path, "", CHATML._replace(template=picky + CHATML.template))
    tokenizer = Tokenizer.load(tmp_path)
    work = reserved()
    made = (
        SampledAnswers([None], tokenizer, work, "g1.0", 9.0)
        if answers == "sampled"
        else of_oracle(work, tokenizer, "compact", 0.0)
    )  # type: ignore[list-item]
    with pytest.raises(DesktopFault, match=r"no_prompt: .*not that"):
        await made.answer(0, Prompt(user="stop it"), Observation(windows=(), elements=()), [], None)


class OnesOwn(Actor):
    """A ledger with one episode of a round, which remembers how it ended."""

    given = False
    released: asyncio.Queue[Release]

    async def on_start(self) -> None:
        type(self).given = False
        type(self).released = asyncio.Queue()

    @handles(Reserve)
    async def reserve(self, msg: Reserve) -> Reservation | NoWork:
        """The episode once, then nothing."""
        first, type(self).given = not type(self).given, True
        return reserved(lane=Lane.EVAL) if first else NoWork(final=True)

    @handles(Release)
    async def release(self, msg: Release) -> Done:
        """Remember it."""
        self.released.put_nowait(msg)
        return Done()


class StandsBack(Actor):
    """A sampler whose engine has gone on to RL."""

    @handles(Generate)
    async def generate(self, msg: Generate) -> Generated:
        """Put it off."""
        raise Deferred("the round on 0.0 is deferred while RL draws")


async def test_an_episode_that_stands_back_for_rl_is_given_back_and_is_no_fault(tmp_path, state_dir):
    async with ActorSystem(tmp_path) as system:
        await system.spawn(ActorSpec(name="replay", factory=OnesOwn))
        await system.spawn(ActorSpec(name="sampler/0", factory=StandsBack))
        config = msgspec.structs.replace(seat_config(state_dir, spares=1), samplers=["sampler/0"])
        # A busy machine boots its desktop late, and a lease that ends before is a fault of another kind.
        config = msgspec.structs.replace(config, seat=msgspec.structs.replace(config.seat, lease_timeout_s=30.0))
        await system.spawn(ActorSpec(name="desktop/0", factory=SEAT, config=config))
        back = await asyncio.wait_for(OnesOwn.released.get(), 60)
        assert (back.fault.cause, back.fault.culprit) == (DEFERRED, "sampler")
        assert not lines(tmp_path, "episode_faulted")


class Told(Actor):
    """A sampler that says what it was asked for."""

    seeds: ClassVar[list[int | None]] = []

    @handles(Generate)
    async def generate(self, msg: Generate) -> Generated:
        """Remember the seed."""
        self.seeds.append(msg.seed)
        return Generated(output_ids=[1], logprobs=[0.0], spans=[], finish="stop", cached_tokens=0)


async def test_a_round_draws_with_the_same_numbers_as_any_other_and_training_by_chance(tmp_path):
    async with ActorSystem(tmp_path) as system:
        await system.spawn(ActorSpec(name="sampler/0", factory=Told))
        for token, lane in enumerate((Lane.EVAL, Lane.EVAL, Lane.TRAIN)):
            work = reserved(token, lane)
            answers = SampledAnswers([system.ref("sampler/0", "desktop/0")], Tokenizer.load(MODEL), work, "g1.0", 9.0)
            for step in range(2):
                await answers.answer(step, Prompt(user="x"), Observation(windows=(), elements=()), [], None)
    first, second, by_chance = Told.seeds[:2], Told.seeds[2:4], Told.seeds[4:]
    assert first == second
    assert None not in first
    assert first[0] != first[1]
    assert by_chance == [None, None]


@pytest.mark.proof
@pytest.mark.timeout(120)
async def test_a_stopped_desktop_host_is_replaced_and_its_work_done_again(tmp_path, state_dir):
    rules = ReplayConfig(retries=2)
    ledger = LedgerSettings(
        seed=1, train_tasks=[], demo_tasks=[TASK], max_turns=8, demos=DemosConfig(count=2), rules=rules, incarnation="x"
    )
    host = HostSpec(
        name="desktops/0", heartbeat_s=0.5, silent_limit_s=10.0, restart=RestartPolicy(first_delay_s=0.0),
        env={"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    async with ActorSystem(tmp_path, hosts=[host]) as system:
        await system.spawn(ActorSpec(name="replay", factory="actors.replay.actor:ReplayActor", config=ledger))
        config = seat_config(state_dir, spares=1)
        config = DesktopSeat(
            seat=SeatConfig(screenshots="none"), desktops=config.desktops, model=str(MODEL), samplers=[]
        )
        await system.spawn(ActorSpec(name="desktop/0", factory=SEAT, config=config, host="desktops/0"))
        (started,) = lines(tmp_path, "host_started")

        async def busy() -> bool:
            return (await system.ref("replay").ask(GetFigures(), timeout_s=20)).seats_busy == 1

        await until(busy)
        os.kill(started["pid"], signal.SIGSTOP)
        stall = (await until(lambda: lines(tmp_path, "stall")))[0]
        assert (stall["who"], stall["whom"], stall["cause"]) == ("main", "host/desktops/0", "silent")
        (lost,) = await until(lambda: lines(tmp_path, "host_lost"))
        assert "was silent for" in lost["cause"]
        (back,) = await until(lambda: lines(tmp_path, "episode_released"))
        assert (back["cause"], back["seat"], back["task"]) == ("abandoned", "desktop/0", TASK)

        async def both() -> bool:
            return (await system.ref("replay").ask(GetFigures(), timeout_s=20)).demos == 2

        await until(both)
    # That the successor has reaped what the killed host left, the state folder's fixture asserts.
