"""What an actor is made of.

Invariant: an actor handles one message at a time, except in handlers declared concurrent. Concurrent handlers are
bounded in number. Every task that an actor starts is its own and ends with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from runtime.clock import Clock
from runtime.disk import DiskGate
from runtime.errors import PayloadLost, ProtocolError
from runtime.hosts import door
from runtime.logs.writer import ActorLog
from runtime.messaging.message import BlobRef, Message, tag_of
from runtime.messaging.refs import Ref
from runtime.segments import SEGMENTS, SegmentStore, read_blobs
from runtime.waits import TaskScope

if TYPE_CHECKING:
    from runtime.messaging.node import Node

T = TypeVar("T")
MethodT = TypeVar("MethodT", bound=Callable[..., Awaitable[Any]])


@dataclass(frozen=True)
class Handler:
    """One declared handler. `slow_after_s` replaces the node's limit for the stall report."""

    message: type[Message]
    call: Callable[..., Awaitable[Any]]
    limit: int
    concurrent: bool
    slow_after_s: float | None


def handles(
    message: type[Message], *, concurrent: bool = False, limit: int = 1024, slow_after_s: float | None = None
) -> Callable[[MethodT], MethodT]:
    """Declare that an async method `(self, message) -> reply` understands `message`.

    Concurrent handlers run at any time, at most `limit` of each at once; all others exclude each other.
    """

    def mark(method: MethodT) -> MethodT:
        method.__handler__ = Handler(  # type: ignore[attr-defined]
            message, method, limit if concurrent else 1, concurrent, slow_after_s
        )
        return method

    return mark


class Actor:
    """Base of all actors. `config` is the Struct of its spec, or None."""

    ctx: Context

    def __init__(self, config: Any = None) -> None:
        self.config = config

    async def on_start(self) -> None:
        """Before the first message. Raising makes the start fail: the supervisor decides."""

    async def on_config(self, config: Any) -> None:
        """A new config of the same type, while other handlers run; later lives start with it, too.

        It counts from the next time that the actor reads it. An actor with more to do overrides this.
        """
        self.config = config

    async def on_stop(self) -> None:
        """After the last message, every handler and spawned task ended; called after a failed `on_start` too."""

    def doing(self) -> str:
        return ""

    @classmethod
    def handlers(cls) -> dict[str, Handler]:
        """Handlers by message name, subclasses before bases. Raises ProtocolError for two of one message."""
        declared: dict[str, tuple[str, Handler]] = {}
        for owner in cls.__mro__:
            for attribute, method in vars(owner).items():
                handler = getattr(method, "__handler__", None)
                if not isinstance(handler, Handler):
                    continue
                name = tag_of(handler.message)
                known = declared.setdefault(name, (attribute, handler))
                if known[0] != attribute:
                    raise ProtocolError(f"{cls.__name__} handles {name} in both {known[0]} and {attribute}")
        return {name: handler for name, (_, handler) in declared.items()}


class Context:
    """What the runtime gives an actor for one life of it."""

    def __init__(self, node: Node, name: str, log: ActorLog, scope: TaskScope) -> None:
        self.name = name
        self.log = log
        self._node = node
        self._scope = scope

    @property
    def run_dir(self) -> Path:
        """The run's folder or, in a process that a cluster has placed, a folder of that process alone."""
        return self._node.run_dir

    @property
    def home(self) -> Path:
        """The run's folder, which all machines of the run share."""
        return self._node.home

    @property
    def apart(self) -> bool:
        """Whether a cluster has placed this process, so that it may be on another machine than the main host."""
        return self._node.ticket is not None

    def address(self) -> str:
        """This machine's address, as the run's other machines reach it; loopback where all is on this one.

        May look up a name. Raises OSError where nothing leads to the main host.
        """
        ticket = self._node.ticket
        return "127.0.0.1" if ticket is None else door.towards(ticket.address)

    def segments(self) -> SegmentStore:
        """A new writer of the run's segments, in this actor's name. Raises StoreError."""
        return SegmentStore(self.home / SEGMENTS, self.name)

    def payloads(self, refs: Iterable[BlobRef]) -> Iterator[bytes | PayloadLost]:
        """What `refs` name in the run's segments, as `read_blobs` gives it. Blocks. Raises StoreError."""
        return read_blobs(self.home / SEGMENTS, refs)

    def disk_gate(self) -> DiskGate:
        return DiskGate(self.home, self.log)

    @property
    def clock(self) -> Clock:
        return self._node.clock

    def ref(self, name: str) -> Ref:
        return Ref(self._node, self.name, name)

    def spawn(self, coro: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        return self._scope.spawn(coro, f"{self.name}:{name}")

    async def shared(self, key: str, factory: Callable[[], Awaitable[T]]) -> T:
        """The one object of this process under `key`, made by the first who asks.

        It needs an async `close()`, called when the host stops. A failing factory raises at its caller, and the
        next one who asks tries again.
        """
        return await self._node.shared.get(self.name, key, factory)
