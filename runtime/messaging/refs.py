"""How actors reach each other.

Invariant: every ask has a finite deadline and ends by it. It ends with the reply, with the domain error that the peer
raised, or with one of DeadlineExceeded, ActorGone, ActorFailed and MailboxFull.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from runtime import errors
from runtime.logs.writer import current_trace
from runtime.messaging import message
from runtime.supervision import Backoff
from runtime.waits import waiting

if TYPE_CHECKING:
    from runtime.messaging.node import Node

R = TypeVar("R")
TELL_TIMEOUT_S = 30.0
PAUSES = Backoff(first_s=0.2, longest_s=5.0)  # between two tries; a supervisor restarts the peer meanwhile
# The peer restarts, is busy or has a slow disk: the same ask may succeed later.
TRANSIENT = (errors.ActorGone, errors.ActorFailed, errors.DeadlineExceeded, errors.MailboxFull, errors.StoreError)


class Ref:
    """A peer by name. Holds no connection and never goes stale."""

    def __init__(self, node: Node, sender: str, name: str) -> None:
        self.name = name
        self._node = node
        self._sender = sender

    def __repr__(self) -> str:
        return f"Ref({self.name!r})"

    async def ask(self, msg: message.Request[R], *, timeout_s: float, trace: str | None = None) -> R:
        """The peer's reply, decoded strictly to the type that the request declares.

        `trace` is by default that of the message being handled. Raises DeadlineExceeded, ActorGone, ActorFailed,
        MailboxFull, ProtocolError, or the domain error that the handler raised. An ask that failed may have been
        carried out: state-changing messages are idempotent for that reason.
        """
        wanted = message.reply_type(type(msg))
        envelope = self._wrap("ask", msg, timeout_s, trace)
        async with waiting(self._sender, self.name, envelope.message, timeout_s, trace=envelope.trace):
            asked = self._node.ask(envelope)
            del msg, envelope  # what was sent is not kept while its answer is waited for
            answer = await asked
        if answer.kind == "error":
            raise message.decode_error(answer.body, from_handler=answer.message == "handler")
        return cast(R, message.decode(answer.body, wanted))

    async def ask_until(
        self,
        msg: message.Request[R],
        *,
        timeout_s: float,
        give_up_s: float,
        trace: str | None = None,
        silent: Callable[[errors.ComputerRLError], None] | None = None,
    ) -> R:
        """The peer's reply to an idempotent `msg`, which is asked again while the peer restarts or its disk refuses.

        `timeout_s` is of one try. Raises what `ask` raises: an error in TRANSIENT once the peer has failed for
        `give_up_s` seconds, any other error at once. Time in which the disk refuses is not counted, for the peer
        answers. `silent` is called with each error in TRANSIENT that is followed by another try.
        """
        clock, failures = self._node.clock, 0
        give_up = clock.now() + give_up_s
        while True:
            failures += 1
            pause_s = PAUSES.delay_s(failures)
            try:
                return await self.ask(msg, timeout_s=timeout_s, trace=trace)
            except errors.DiskRefuses:
                give_up = clock.now() + give_up_s
            except TRANSIENT as error:
                if clock.now() + pause_s > give_up:
                    raise
                if silent is not None:
                    silent(error)
            await clock.sleep(pause_s)

    async def tell(self, msg: message.Message, *, trace: str | None = None, timeout_s: float = TELL_TIMEOUT_S) -> None:
        """Return once the message is in the peer's mailbox; what becomes of it is not reported.

        Raises MailboxFull, ActorGone or DeadlineExceeded when it did not get there.
        """
        envelope = self._wrap("tell", msg, timeout_s, trace)
        async with waiting(self._sender, self.name, f"delivery of {envelope.message}", timeout_s, trace=envelope.trace):
            answer = await self._node.tell(envelope)
        if answer is not None and answer.kind == "error":
            raise message.decode_error(answer.body, from_handler=answer.message == "handler")

    def _wrap(self, kind: message.Kind, msg: Any, timeout_s: float, trace: str | None) -> message.Envelope:
        return message.Envelope(
            id=message.fresh_id(),
            kind=kind,
            to=self.name,
            sender=self._sender,
            reply_to=self._node.name,
            trace=trace if trace is not None else current_trace.get(),
            deadline=self._node.clock.now() + timeout_s,
            message=message.tag_of(type(msg)),
            body=message.encode(msg),
        )
