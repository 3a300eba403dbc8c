"""The life of an episode, without any I/O.

Invariant: success needs two witnesses, the agent's claim and the verifier. There is deliberately no way from
`VERIFYING` back to `ACTING`, because a frozen desktop never thaws for the policy. There is none from any stage but
`VERIFYING` to a success. An episode that ran out of steps, gave up or broke its desktop has failed, even if the file is
right.
"""

from __future__ import annotations

from enum import StrEnum

from actors.replay.messages import Outcome
from apis.tasks.verify.verify import TaskVerdict
from runtime.errors import ProtocolError


class Stage(StrEnum):
    """What a seat is doing."""

    IDLE = "idle"  # waiting for the ledger
    RESTING = "resting"  # quarantined
    LEASING = "leasing"  # waiting for a booted desktop
    SETUP = "setup"
    OBSERVING = "observing"
    GENERATING = "generating"
    ACTING = "acting"  # act and settle
    VERIFYING = "verifying"
    REPORTING = "reporting"  # commit or release


BUSY = frozenset(
    {Stage.LEASING, Stage.SETUP, Stage.OBSERVING, Stage.GENERATING, Stage.ACTING, Stage.VERIFYING, Stage.REPORTING}
)

_NEXT: dict[Stage, frozenset[Stage]] = {
    Stage.IDLE: frozenset({Stage.LEASING, Stage.RESTING}),
    Stage.RESTING: frozenset({Stage.IDLE}),
    Stage.LEASING: frozenset({Stage.SETUP, Stage.REPORTING}),
    Stage.SETUP: frozenset({Stage.OBSERVING, Stage.REPORTING}),
    Stage.OBSERVING: frozenset({Stage.GENERATING, Stage.VERIFYING, Stage.REPORTING}),
    Stage.GENERATING: frozenset({Stage.ACTING, Stage.VERIFYING, Stage.REPORTING}),
    Stage.ACTING: frozenset({Stage.OBSERVING, Stage.VERIFYING, Stage.REPORTING}),
    Stage.VERIFYING: frozenset({Stage.REPORTING}),
    Stage.REPORTING: frozenset({Stage.IDLE}),
}


class StageClock:
    """Holds the current stage and adds up the seconds of each."""

    def __init__(self, now: float) -> None:
        self.stage = Stage.IDLE
        self.since = now
        self.seconds: dict[Stage, float] = dict.fromkeys(Stage, 0.0)
        self._reported = dict(self.seconds)
        self._reported_at = now

    def enter(self, stage: Stage, now: float) -> None:
        """Move to `stage` at `now` (seconds, monotonic). Raises ProtocolError on a transition that does not exist."""
        if stage not in _NEXT[self.stage]:
            raise ProtocolError(f"a seat can't go from {self.stage} to {stage}")
        self.seconds[self.stage] += now - self.since
        self.stage, self.since = stage, now

    def since_reported(self, now: float) -> tuple[float, dict[str, float]]:
        """When this was last asked for, and the seconds by stage since then; stages without any are left out."""
        seconds = dict(self.seconds)
        seconds[self.stage] += now - self.since
        spent = {str(stage): seconds[stage] - self._reported[stage] for stage in Stage}
        began, self._reported, self._reported_at = self._reported_at, seconds, now
        return began, {stage: value for stage, value in spent.items() if value > 0}

    def busy_s(self, now: float) -> float:
        """Seconds spent between a granted reservation and its report, up to `now`."""
        running = now - self.since if self.stage in BUSY else 0.0
        return sum(self.seconds[stage] for stage in BUSY) + running


class EpisodeEnding(StrEnum):
    """Why the agent's turn ended."""

    CLAIMED = "claimed"  # Agent.exit(success=True)
    GAVE_UP = "gave_up"  # Agent.exit(success=False)
    OUT_OF_STEPS = "out_of_steps"
    BROKE_DESKTOP = "broke_desktop"


def ending_after(step: int, max_turns: int, exit_success: bool | None) -> EpisodeEnding | None:
    """Whether the episode ends after its `step`-th step (from 0); `exit_success` is None for an action but exit."""
    if exit_success is not None:
        return EpisodeEnding.CLAIMED if exit_success else EpisodeEnding.GAVE_UP
    return EpisodeEnding.OUT_OF_STEPS if step + 1 >= max_turns else None


def needs_verifier(ending: EpisodeEnding, feasible: bool, *, scored: bool = False) -> bool:
    """Only a claim about a feasible task is worth reading files for; where its end state is `scored`, a time-out, too.

    OSWorld's score of giving up a feasible task is 0, whatever the files say.
    """
    return feasible and (ending is EpisodeEnding.CLAIMED or (scored and ending is EpisodeEnding.OUT_OF_STEPS))


def outcome_of(ending: EpisodeEnding, feasible: bool, verdict: TaskVerdict | None) -> Outcome:
    """The outcome of an ended episode; `verdict` is None when no verifier was needed."""
    score = None if verdict is None else verdict.points
    if ending is EpisodeEnding.CLAIMED and feasible:
        verified = verdict is not None and verdict.success
        return Outcome(success=verified, reason="verified" if verified else "not_verified", score=score)
    if ending is EpisodeEnding.GAVE_UP and not feasible:
        return Outcome(success=True, reason="verified", feasible=False, score=1.0)
    reason = {
        EpisodeEnding.CLAIMED: "not_verified",
        EpisodeEnding.GAVE_UP: "agent_gave_up",
        EpisodeEnding.OUT_OF_STEPS: "out_of_steps",
        EpisodeEnding.BROKE_DESKTOP: "agent_broke_desktop",
    }[ending]
    return Outcome(success=False, reason=reason, feasible=feasible, score=score)
