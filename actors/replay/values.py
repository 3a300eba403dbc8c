"""What an episode is made of: why it is played, its steps, its end, and its group.

Invariant: values alone, frozen and untagged, nested in messages and stored by the ledger. A step's payload stands apart
from its reference, so that the ledger reads no payload. A fault is of another type than an outcome.
"""

from __future__ import annotations

from enum import StrEnum

from runtime.messaging.message import BlobRef, Value, Version


class Lane(StrEnum):
    """Why an episode is played."""

    TRAIN = "train"
    EVAL = "eval"
    DEMO = "demo"


class Phase(StrEnum):
    """What the learner does with what desktops produce."""

    DEMO = "demo"  # demonstrations are recorded, nothing is trained
    BC = "bc"  # cross-entropy on demonstrations
    RL = "rl"  # step-level GRPO
    PULSE = "pulse"  # cross-entropy on the phase's own successes (Entropulse)
    DONE = "done"


class PhaseRef(Value):
    """One segment in a phase; `index` counts segments from 0, so RL before and after a pulse differ."""

    phase: Phase
    index: int


class Sampling(Value):
    """How tokens are drawn. `temperature` 0 is greedy. Top-p, top-k and penalties do not exist here on purpose."""

    temperature: float
    max_new_tokens: int


class VersionSpan(Value):
    """Tokens `start` (inclusive) to `end` (exclusive) of a response were drawn from weights `version`."""

    version: Version
    start: int
    end: int


class StepPayload(Value):
    """One stored prompt-response sample; lives in a segment file, encoded as MessagePack."""

    prompt_ids: list[int]
    response_ids: list[int]  # ends with the end-of-turn token unless cut by length
    logprobs: list[float]  # behaviour policy's, natural log at the recorded temperature; empty for demonstrations
    spans: list[VersionSpan]  # empty for demonstrations
    temperature: float
    observation: str  # text shown to the model, as stored for people
    response: str
    action: str | None  # JSON of the typed action, None when refused
    refusal: str | None
    result: str | None  # what the desktop answered
    screenshot: BlobRef | None
    observe_ms: float
    generate_ms: float
    act_ms: float
    by: str = ""  # of a demonstration: the member of the pool that took the step, or "policy"


class StepRef(Value):
    """What the ledger knows of a step without opening its payload."""

    blob: BlobRef
    prompt_tokens: int
    response_tokens: int
    well_formed: bool
    oldest: Version | None  # version of the oldest token; None for demonstrations
    screenshot: BlobRef | None = None  # as in the payload; named here so that its segment lives as long as the step
    function: str = ""  # what the action calls ("click", "calc.set_cell"); "" when the answer was refused
    line: str = ""  # 16 hex digits: digest of the action with its arguments, or of an answer that was refused
    newest: Version | None = None  # version of the newest token; None for demonstrations
    surprisal: float = 0.0  # nats: minus the sum of `StepPayload.logprobs`
    end: list[BlobRef] = []  # of an episode's last step: what it was judged by (`actors/desktop/end_state.py`)

    @property
    def blobs(self) -> list[BlobRef]:
        """All payloads that live as long as the step."""
        return [self.blob, *([self.screenshot] if self.screenshot is not None else []), *self.end]


class Fault(Value):
    """An infrastructure fault: something seen from the host went wrong. Never an outcome of the policy."""

    cause: str  # one of apis/desktop fault causes, e.g. "boot_timeout", "connection_lost", "sampler_unavailable"
    detail: str
    culprit: str  # "seat", "host", "image", "task", "sampler", "verifier" or "disk": what quarantine counts it against


DISK_REFUSES = "disk_refuses"  # cause of a release: what was played could not be stored
DISK = "disk"  # its culprit: neither a seat, a host nor a task pays for it
DEFERRED = "put_off"  # cause of a release that nothing broke: an episode of a round stands back for RL


class Outcome(Value):
    """How an episode ended on its own account."""

    success: bool
    reason: str  # "verified", "not_verified", "out_of_steps", "agent_broke_desktop", "agent_gave_up"
    feasible: bool = True
    score: float | None = None  # of the end state, 0 to 1, as OSWorld scores it; None: it was not judged


class TrajectoryRef(Value):
    """One committed episode."""

    token: int
    success: bool
    steps: list[StepRef]


class GroupRef(Value):
    """A complete group of one task."""

    group: str
    task: str
    trajectories: list[TrajectoryRef]
