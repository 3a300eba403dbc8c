"""Every error that this program raises on purpose.

Invariant: an error that crosses an actor's border is one of these. Any other error is a defect and restarts the actor
that it arose in. A library's errors are translated where they arise.
"""

# ruff: noqa: N818 - an error is named after its condition, as in `except MailboxFull`

from __future__ import annotations


class ComputerRLError(Exception):
    """Base of all errors with a meaning. Its text is for people and fits on one line."""


class ConfigError(ComputerRLError):
    """What the user gave can't work; says which setting and what to do. Never cured by a restart."""


class ProtocolError(ComputerRLError):
    """Two parts disagree about a message, a frame or a log event: a defect, not a condition."""


class DeadlineExceeded(ComputerRLError):
    """A wait reached its deadline; the text says who waited how long for what from whom."""


class MailboxFull(ComputerRLError):
    """The peer's mailbox pushed back until the deadline; the message was not delivered."""


class ActorGone(ComputerRLError):
    """The peer does not exist, stopped, restarted or lost its host while the message was with it."""


class ActorFailed(ComputerRLError):
    """The peer's handler raised; `type_name` and `text` are of the error it raised."""

    def __init__(self, type_name: str, text: str) -> None:
        super().__init__(f"{type_name}: {text}")
        self.type_name = type_name
        self.text = text


class HostLost(ComputerRLError):
    """A process host ended without being asked to."""


class StoreError(ComputerRLError):
    """Stored bytes are missing, torn or not what their digest says, or can't be written."""


class DiskRefuses(StoreError):
    """The disk takes no more bytes: it is full or fails. The same request succeeds once it takes them."""


class PayloadLost(StoreError):
    """A stored payload is gone, freed, torn or not what its digest says: another try would read the same."""


class SamplerError(ComputerRLError):
    """An engine refused, failed or answered nonsense."""


class PutOff(SamplerError):
    """Engines that hold one version serve RL now: what an evaluation round asked for is drawn later, from the start."""


class LearnerError(ComputerRLError):
    """A rank process failed or a step could not be computed."""


class DesktopFault(ComputerRLError):
    """Infrastructure under a desktop failed: seen from the host, never an outcome of the policy.

    `culprit` is what quarantine counts it against: "seat", "host", "image", "task", "sampler" or "verifier".
    """

    def __init__(self, cause: str, detail: str, culprit: str) -> None:
        super().__init__(f"{cause}: {detail}")
        self.cause = cause
        self.detail = detail
        self.culprit = culprit


class LeaseLost(DesktopFault):
    """A desktop was called on a lease that is over: the pool took it back, so whatever it does is nobody's doing."""

    def __init__(self, detail: str) -> None:
        super().__init__("lease_expired", detail, "seat")


class LedgerError(ComputerRLError):
    """The replay ledger refused a request that contradicts what it holds."""


class FencedOff(LedgerError):
    """A fencing token is not outstanding any more: the work was handed to others or ended without its holder."""


class EngineError(ComputerRLError):
    """The embedded engine can't do what was asked: unusable weights, an unknown weight version."""


class AgentBrokeDesktop(ComputerRLError):
    """What the policy did ended its desktop, or made it answer nonsense: an outcome with reward 0, never a fault."""

    def __init__(self, cause: str, detail: str) -> None:
        super().__init__(f"{cause}: {detail}")
        self.cause = cause
        self.detail = detail


class GuestRefused(ComputerRLError):
    """The in-guest agent could not carry out one call; the desktop goes on. `kind` is one short word."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.text = text


class EngineBusy(EngineError):
    """The embedded engine's waiting line is full; the same request may succeed later."""


class NoModel(LearnerError):
    """The rank holds no model, or another version than the one asked about: it was restarted."""


class EngineGone(SamplerError):
    """The engine can't be reached, or the connection broke before its answer was complete."""


class SamplerTimeout(SamplerError):
    """No engine answered a request within the sampler's own limit."""
