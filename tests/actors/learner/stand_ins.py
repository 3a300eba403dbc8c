"""Who the learner talks to besides the ledger and the rank: a sampler that serves whatever it is told of, and seats."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import msgspec

from actors.replay.messages import (
    Commit,
    NoWork,
    Outcome,
    PhaseRef,
    Reservation,
    Reserve,
    Serving,
    StepPayload,
    StepRef,
    VersionSpan,
)
from actors.sampler.messages import FallAsleep, Generate, Refused, WakeUp, Weights
from runtime.actor import Actor, handles
from runtime.messaging.message import Done, Version
from runtime.messaging.refs import Ref
from runtime.segments import SegmentStore
from tests.actors.replay import ledger_tools
from tests.policy.tiny_models import VOCAB

SEATS = 5  # the seed of what they play
_wishes = itertools.count()


class Sampler(Actor):
    """Tells the ledger that it serves each version it hears of."""

    heard: list[Weights] = []

    @handles(Weights)
    async def weights(self, msg: Weights) -> None:
        Sampler.heard.append(msg)
        await self.ctx.ref("replay").ask(Serving(sampler=self.ctx.name, version=msg.version), timeout_s=30)

    @handles(Generate)
    async def generate(self, msg: Generate) -> Refused:
        """It has no engine to draw with."""
        return Refused(reason=f"{msg.rid}: no engine")


class Sleeper(Sampler):
    """Has the card of the rank in turn with it; `asleep` says whose turn it is."""

    asleep, turn = False, ""

    @handles(FallAsleep)
    async def sleep(self, msg: FallAsleep) -> Done:
        """It has no engine that would have to end what it draws."""
        Sleeper.asleep, Sleeper.turn = True, msg.turn
        return Done()

    @handles(WakeUp)
    async def wake(self, msg: WakeUp) -> Done:
        """Of the turn that it sleeps for."""
        assert msg.turn == Sleeper.turn
        Sleeper.asleep = False
        return Done()


def payload(rng: random.Random, version: Version | None, length: int = 6) -> StepPayload:
    """A step of random tokens; behaviour log-probabilities are near those of a uniform policy."""
    drawn = version is not None
    return ledger_tools.payload(
        prompt_ids=[rng.randrange(VOCAB) for _ in range(rng.randint(8, 20))],
        response_ids=[rng.randrange(VOCAB) for _ in range(length)],
        logprobs=[-4.5 + rng.uniform(-0.2, 0.2) for _ in range(length)] if drawn else [],
        spans=[VersionSpan(version=version, start=0, end=length)] if version is not None else [],
    )


class Seats:
    """Plays episodes: whatever the ledger hands out is committed at once."""

    def __init__(self, replay: Ref, run_dir: Path) -> None:
        self._replay = replay
        self._store = SegmentStore(run_dir / "segments", "desktop-0")
        self._rng = random.Random(SEATS)
        self.played: list[PhaseRef] = []

    def close(self) -> None:
        self._store.close()

    async def play(self, episodes: int, version: Version | None, *, wait_s: float = 10.0) -> int:
        """Commit up to `episodes` episodes, every second one a success; how many there was work for."""
        for done in range(episodes):
            request = Reserve(seat="desktop/0", request_id=f"request-{next(_wishes)}", wait_s=wait_s)
            got: Reservation | NoWork = await self._replay.ask(request, timeout_s=wait_s + 5)
            if isinstance(got, NoWork):
                return done
            self.played.append(got.phase)
            success = version is None or done % 2 == 0
            steps = [self._step(version) for _ in range(2)]
            commit = Commit(
                token=got.token,
                seat="desktop/0",
                outcome=Outcome(success=success, reason="verified" if success else "not_verified"),
                steps=steps,
                wall_s=1.0,
                busy_s=0.5,
            )
            answer: Done = await self._replay.ask(commit, timeout_s=30)
            assert isinstance(answer, Done)
        return episodes

    def _step(self, version: Version | None) -> StepRef:
        step = payload(self._rng, version)
        blob = self._store.append(msgspec.msgpack.encode(step))
        return StepRef(
            blob=blob,
            prompt_tokens=len(step.prompt_ids),
            response_tokens=len(step.response_ids),
            well_formed=True,
            oldest=version,
            surprisal=-sum(step.logprobs),
        )
