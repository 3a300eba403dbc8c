"""When a task that keeps breaking episodes is not handed out. Pure.

Invariant: a task rests after `FAULTS_IN_A_ROW` faults that were its own, with no outcome between them; while it rests
nobody plays it but one probe at a time, and only a probe that comes to an outcome, whatever that is, lets it back.

Transitions that are missing on purpose:
- resting -> well by an episode handed out before the rest: it says how the task was, not how it is.
- probing -> well by any episode but the probe, and probing -> probing: one answer is waited for, not several.
- probing -> a longer rest by a fault that was not the task's: it tells nothing of the task; the probe is tried again.
- well -> an empty streak but by an outcome: what a probe let back rests again at its next fault.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

FAULTS_IN_A_ROW = 3
FIRST_PROBE_S = 60.0
LONGEST_PROBE_S = 3600.0
CULPRIT = "task"


class WardState(StrEnum):
    """How a task stands."""

    WELL = "well"
    RESTING = "resting"
    PROBING = "probing"


class Ward(msgspec.Struct, frozen=True, kw_only=True):
    """One task's faults. `probe` is the token of the one episode that probes it; times are monotonic seconds."""

    state: WardState = WardState.WELL
    streak: int = 0
    failed_probes: int = 0
    probe_at: float = 0.0
    probe: int = 0

    def playable(self, now: float) -> bool:
        """Whether it may be handed out: as ever, or as a probe that is due."""
        return self.state is WardState.WELL or (self.state is WardState.RESTING and now >= self.probe_at)

    def handed_out(self, token: int) -> Ward:
        """An episode of it was handed out; on a resting task that is the probe."""
        if self.state is not WardState.RESTING:
            return self
        return msgspec.structs.replace(self, state=WardState.PROBING, probe=token)

    def broken(self, token: int, culprit: str, now: float) -> Ward:
        """Infrastructure broke the episode `token` of it."""
        if self.state is WardState.PROBING and token == self.probe:
            if culprit != CULPRIT:
                return msgspec.structs.replace(self, state=WardState.RESTING, probe_at=now, probe=0)
            return self._rest(now, self.failed_probes + 1)
        if self.state is not WardState.WELL or culprit != CULPRIT:
            return self
        counted = msgspec.structs.replace(self, streak=self.streak + 1)
        return counted._rest(now, 0) if counted.streak >= FAULTS_IN_A_ROW else counted

    def ended(self, token: int) -> Ward:
        """The episode `token` of it came to an outcome."""
        if self.state is WardState.WELL:
            return Ward()
        if self.state is WardState.PROBING and token == self.probe:
            return Ward(streak=FAULTS_IN_A_ROW - 1)
        return self

    def _rest(self, now: float, failed_probes: int) -> Ward:
        delay_s = min(LONGEST_PROBE_S, FIRST_PROBE_S * 2.0 ** min(failed_probes, 30))
        return Ward(
            state=WardState.RESTING, streak=self.streak, failed_probes=failed_probes, probe_at=now + delay_s, probe=0
        )
