"""What a child host and the main host say to each other, besides envelopes.

Invariant: the first frame of a child is `Hello`, and no actor is started before the main host has checked it. Then
`Beat` and `Beaten` find out how far the child's clock is, and `SetClock` comes before the first `Start`.
"""

from __future__ import annotations

from runtime.messaging.envelope import Envelope
from runtime.messaging.message import Message
from runtime.spec import WireSpec
from runtime.status import ActorStatus


class Hello(Message):
    """Child: this is me, this is the code that I run, and this is the boot of my machine (`processor.boot_id`)."""

    name: str
    pid: int
    root: str
    build: str
    boot: str


class Start(Message):
    """Main: run these actors too."""

    specs: list[WireSpec]


class Started(Message):
    """Child: `on_start` has ended well."""

    name: str


class GaveUp(Message):
    """Child: an actor can't be kept alive."""

    name: str
    reason: str


class StopActors(Message):
    """Main: stop these actors, then answer `Stopped` with the same id."""

    id: int
    names: list[str]


class Configure(Message):
    """Main: give these actors their new configs, then answer `Configured` with the same id."""

    id: int
    specs: list[WireSpec]


class Stopped(Message):
    """Child: done."""

    id: int


class Configured(Message):
    """Child: they have taken them."""

    id: int


class Beat(Message):
    """Main: does your loop turn? Answer `Beaten` with the same id."""

    id: int


class Beaten(Message):
    """Child: it does, and this is what it costs.

    `clock` is what the child's own monotonic clock says, for finding out how far it is from the run's.
    `cpu_s` are the seconds of processor time of this process since its start, and of those below it where its spec says
    so; `machine_cpu_s` are those of the whole
    machine since its boot. `lag_s` is how late the loop was at the latest since the last beat.
    """

    id: int
    clock: float
    cpu_s: float
    machine_cpu_s: float
    lag_s: float


class SetClock(Message):
    """Main: your own clock is `offset_s` seconds behind the run's, whose wall time is `wall_s` ahead of it."""

    offset_s: float
    wall_s: float


class AskStatus(Message):
    """Main: what are your actors doing?"""

    id: int


class Statuses(Message):
    """Child: this."""

    id: int
    actors: list[ActorStatus]


class PeersLost(Message):
    """Main: another host is gone with these actors; asks to them fail now."""

    names: list[str]
    reason: str


class LogLine(Message):
    """Child elsewhere: a line of its log."""

    line: bytes


class StopHost(Message):
    """Main: stop everything and exit."""


FromChild = Envelope | Hello | LogLine | Started | GaveUp | Stopped | Configured | Beaten | Statuses
FromMain = Envelope | Start | StopActors | Configure | Beat | SetClock | AskStatus | PeersLost | StopHost
