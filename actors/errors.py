"""Errors that the actors raise at each other."""

# ruff: noqa: N818 - an error is named after its condition, as in `except EngineGone`

from __future__ import annotations

from runtime.errors import ComputerRLError


class SamplerError(ComputerRLError):
    """An engine refused, failed or answered nonsense."""


class Deferred(SamplerError):
    """Engines that hold one version serve RL now: what an evaluation round asked for is drawn later, from the start."""


class SamplerTimeout(SamplerError):
    """No engine answered a request within the sampler's own limit."""


class EngineGone(SamplerError):
    """The engine can't be reached, or the connection broke before its answer was complete."""


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
    """A desktop was called on a lease that is over: the pool took it back, and what it does now counts for no
    episode.
    """

    def __init__(self, detail: str) -> None:
        super().__init__("lease_expired", detail, "seat")


class LedgerError(ComputerRLError):
    """The replay ledger refused a request that contradicts what it holds."""


class FencedOff(LedgerError):
    """A fencing token is not outstanding any more: the work was handed to others or ended without its holder."""


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
