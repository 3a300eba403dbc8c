"""Which sampler a request goes to. Pure.

Least outstanding tokens, with prefix affinity: the steps of an episode share a prefix, so they go where the first
step went. They go elsewhere when that engine is down or much busier than the idlest.

Invariant: an engine's account holds the tokens of requests that were sent and have not ended. An engine that failed
is asked again only after a pause that grows until it answers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence

import msgspec

from runtime.supervision import Backoff

HIT, MOVED, NEW = "hit", "moved", "new"  # of an affinity: kept, given up for another engine, seen for the first time


class RouterConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How much affinity weighs, and how long a failed engine is left alone."""

    slack_tokens: int = 16_384  # an engine may have so many more outstanding than the idlest and keep its episodes
    remembered: int = 4096  # affinities, the latest used
    first_pause_s: float = 0.5
    longest_pause_s: float = 15.0


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

    def __init__(self, names: Sequence[str], config: RouterConfig) -> None:
        self._config = config
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
        if home in up and up[home].outstanding <= up[idlest].outstanding + self._config.slack_tokens:
            name = home
        if affinity:
            self._homes[affinity] = name
            self._homes.move_to_end(affinity)
            while len(self._homes) > self._config.remembered:
                self._homes.popitem(last=False)
        self.engines[name].outstanding += tokens
        what = "" if not affinity else NEW if home is None else HIT if name == home else MOVED
        return Choice(name, what)

    def rename(self, names: Sequence[str]) -> None:
        """These are the engines from now on; accounts of the others stay until what they were sent has ended."""
        known = self.engines | self.leaving
        self.engines = {name: known.get(name, EngineAccount()) for name in names}
        self.leaving = {name: one for name, one in known.items() if one.outstanding and name not in self.engines}

    def ended(self, name: str, tokens: int) -> None:
        """A request that was sent there has ended, however."""
        account = self._account(name)
        account.outstanding -= tokens
        if not account.outstanding:
            self.leaving.pop(name, None)

    def _account(self, name: str) -> EngineAccount:
        return self.engines.get(name) or self.leaving[name]

    def answered(self, name: str) -> None:
        """It gave a real answer: nothing is held against it any more."""
        engine = self._account(name)
        engine.failures, engine.down_until = 0, 0.0

    def failed(self, name: str, now: float) -> None:
        """It could not be asked: leave it alone for a while."""
        engine, config = self._account(name), self._config
        if now < engine.down_until:
            return  # of the requests that were on their way to it when it failed, each says so
        engine.failures += 1
        pauses = Backoff(first_s=config.first_pause_s, longest_s=config.longest_pause_s)
        engine.down_until = now + pauses.delay_s(engine.failures)

    def next_up_s(self, now: float) -> float:
        """Seconds until an engine may be asked."""
        return max(0.0, min(engine.down_until for engine in self.engines.values()) - now)
