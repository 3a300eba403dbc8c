"""The router in front of several samplers: fewest outstanding tokens, with prefix affinity.

The steps of an episode share a prefix, so they go where the first step went, unless that engine is down or much busier
than the idlest. An engine that failed is asked again only after a pause that grows until it answers; one that dies
during a request costs another try.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Collection, Sequence
from contextlib import suppress

import msgspec

from actors.errors import EngineGone, SamplerTimeout
from actors.replay.messages import Sampling
from actors.sampler import messages
from actors.sampler.messages import Generated, Refused
from policy.errors import EngineBusy
from runtime.actor import Actor, handles
from runtime.errors import ActorGone, DeadlineExceeded, MailboxFull, ProtocolError
from runtime.messaging.message import Request, Version
from runtime.supervision import Backoff
from runtime.waits import waiting

SLACK_TOKENS = 16_384  # an engine may have so many more outstanding than the idlest and keep its episodes
REMEMBERED = 4096  # affinities, the latest used
PAUSES = Backoff(first_s=0.5, longest_s=15.0)  # for which a failed engine is left alone
HIT, MOVED, NEW = "hit", "moved", "new"  # of an affinity: kept, given up for another engine, seen for the first time


class EngineAccount(msgspec.Struct):
    """What is known of one."""

    outstanding: int = 0
    failures: int = 0  # in a row
    down_until: float = 0.0


class Choice(msgspec.Struct, frozen=True):
    """Where to, and what became of the request's affinity ("" where it has none)."""

    name: str
    affinity: str


class Router:
    """State of one router."""

    def __init__(self, names: Sequence[str]) -> None:
        self.engines = {name: EngineAccount() for name in names}
        self.leaving: dict[str, EngineAccount] = {}  # sent nothing more, and asked until what they were sent has ended
        self._homes: OrderedDict[str, str] = OrderedDict()

    def choose(self, affinity: str, tokens: int, now: float, *, without: Collection[str] = ()) -> Choice | None:
        """Where a request of `tokens` (prompt and response) goes; its tokens are on that engine's account from now on.

        None when every engine is down or in `without`.
        """
        up = {name: engine for name, engine in self.engines.items() if name not in without and engine.down_until <= now}
        if not up:
            return None
        idlest = min(up, key=lambda name: up[name].outstanding)
        home = self._homes.get(affinity) if affinity else None
        name = idlest
        if home in up and up[home].outstanding <= up[idlest].outstanding + SLACK_TOKENS:
            name = home
        if affinity:
            self._homes[affinity] = name
            self._homes.move_to_end(affinity)
            while len(self._homes) > REMEMBERED:
                self._homes.popitem(last=False)
        self.engines[name].outstanding += tokens
        what = "" if not affinity else NEW if home is None else HIT if name == home else MOVED
        return Choice(name, what)

    def rename(self, names: Sequence[str]) -> None:
        """These are the engines from now on; accounts of the others stay until what they were sent has ended."""
        known = self.engines | self.leaving
        self.engines = {name: known.get(name, EngineAccount()) for name in names}
        self.leaving = {
            name: account for name, account in known.items() if account.outstanding and name not in self.engines
        }

    def ended(self, name: str, tokens: int) -> None:
        account = self._account(name)
        account.outstanding -= tokens
        if not account.outstanding:
            self.leaving.pop(name, None)

    def _account(self, name: str) -> EngineAccount:
        return self.engines.get(name) or self.leaving[name]

    def answered(self, name: str) -> None:
        engine = self._account(name)
        engine.failures, engine.down_until = 0, 0.0

    def failed(self, name: str, now: float) -> None:
        engine = self._account(name)
        if now < engine.down_until:
            return  # of the requests that were on their way to it when it failed, each says so
        engine.failures += 1
        engine.down_until = now + PAUSES.delay_s(engine.failures)

    def next_up_s(self, now: float) -> float:
        return max(0.0, min(engine.down_until for engine in self.engines.values()) - now)


class PassedOn(Request[Generated | Refused], tag="Generate"):
    """`prompt_ids` is MessagePack. Of 16,000 numbers, making and writing them took more than all else here."""

    rid: str
    prompt_ids: msgspec.Raw
    sampling: Sampling
    pin: Version | None = None
    affinity: str = ""
    seed: int | None = None
    pictures: list[bytes] = []
    elsewhere: bool = False

    @property
    def prompt_tokens(self) -> int:
        """How many ids the prompt has. Raises ProtocolError where it is no list."""
        head = bytes(memoryview(self.prompt_ids)[:5])
        match head[0]:
            case 0xDD:
                return int.from_bytes(head[1:5], "big")
            case 0xDC:
                return int.from_bytes(head[1:3], "big")
            case small if small >> 4 == 0x9:
                return small & 0xF
        raise ProtocolError("prompt_ids is no list")


_REPORT_S = 30.0
_SHORTEST_WAIT_S = 0.05
_BUSY_S = 0.25


class DispatchSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the router is started with."""

    samplers: list[str]
    generate_timeout_s: float = 120.0


class DispatchActor(Actor):
    """Sends every request to one sampler, and to another where that fails."""

    config: DispatchSettings

    def __init__(self, config: DispatchSettings) -> None:
        super().__init__(config)
        self._router = Router(config.samplers)
        self._seen: Counter[str] = Counter()
        self._drawn: Counter[str] = Counter()  # sampler -> tokens
        self._retries = 0

    async def on_start(self) -> None:
        self.ctx.spawn(self._report(), "report")

    async def on_config(self, config: DispatchSettings) -> None:
        """Other samplers. Returns when those that leave have answered what they were sent, or are too late."""
        self.config = config
        self._router.rename(config.samplers)
        with suppress(DeadlineExceeded):  # what is left goes to another one when its sampler ends
            async with waiting(self.ctx.name, "samplers", "the last answers", config.generate_timeout_s):
                while self._router.leaving:
                    await self.ctx.clock.sleep(_BUSY_S)

    def doing(self) -> str:
        return ", ".join(f"{name}: {engine.outstanding} tokens" for name, engine in self._router.engines.items())

    @handles(PassedOn, concurrent=True)
    async def generate(self, msg: PassedOn) -> Generated | Refused:
        """Ask one sampler after the other. Raises SamplerError when none gives a sound answer in time."""
        limit_s = self.config.generate_timeout_s
        try:
            async with waiting(self.ctx.name, "samplers", f"response {msg.rid}", limit_s):
                return await self._route(msg, limit_s)
        except DeadlineExceeded as error:
            raise SamplerTimeout(str(error)) from error

    async def _route(self, msg: PassedOn, limit_s: float) -> Generated | Refused:
        tokens = msg.prompt_tokens + msg.sampling.max_new_tokens
        attempt, busy = 0, set[str]()  # up, but with a full line or other weights than the pinned
        while True:
            choice = self._router.choose(msg.affinity, tokens, self.ctx.clock.now(), without=busy)
            if choice is None and busy:
                busy.clear()
                await self.ctx.clock.sleep(_BUSY_S)
                continue
            if choice is None:
                await self.ctx.clock.sleep(max(_SHORTEST_WAIT_S, self._router.next_up_s(self.ctx.clock.now())))
                continue
            attempt += 1
            if attempt == 1 and choice.affinity:
                self._seen[choice.affinity] += 1
            try:
                # Only one sampler: it waits for its own engine.
                asked = msgspec.structs.replace(msg, elsewhere=len(self._router.engines) > 1)
                reply = await self.ctx.ref(choice.name).ask(asked, timeout_s=limit_s)
            except EngineBusy:
                busy.add(choice.name)
            except (ActorGone, EngineGone, MailboxFull) as error:
                self._router.failed(choice.name, self.ctx.clock.now())
                self._retries += 1
                self.ctx.log.emit(
                    messages.REQUEST_MOVED, rid=msg.rid, sampler=choice.name, attempt=attempt, cause=str(error)
                )
            else:
                self._router.answered(choice.name)
                if isinstance(reply, Generated):
                    self._drawn[choice.name] += len(reply.output_ids)
                return reply
            finally:
                self._router.ended(choice.name, tokens)

    async def _report(self) -> None:
        while True:
            began = time.monotonic()
            await self.ctx.clock.sleep(_REPORT_S)
            seen, self._seen = self._seen, Counter()
            drawn, self._drawn = self._drawn, Counter()
            retries, self._retries = self._retries, 0
            if not seen and not drawn and not retries:
                continue
            returning = seen[HIT] + seen[MOVED]
            self.ctx.log.emit(
                messages.ROUTED,
                span_s=round(time.monotonic() - began, 3),
                new=seen[NEW],
                hits=seen[HIT],
                moved=seen[MOVED],
                hit_rate=round(seen[HIT] / returning, 4) if returning else None,
                retries=retries,
                outstanding={name: engine.outstanding for name, engine in self._router.engines.items()},
                drawn=dict(drawn),
            )
