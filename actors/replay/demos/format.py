"""The format of a recording of demonstrations.

Invariant: fields have the names that existing files hold. A field is only ever added, with a default.
"""

from __future__ import annotations

import msgspec

from actors.replay import observed
from actors.replay.messages import StepPayload
from runtime.segments import digest_of

FORMAT = "computerrl-demos-3"


class TaskAttempts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How often a task was tried: by members of the pool, and with each step by a random one."""

    task: str
    tries: int
    wins: int
    mixed_tries: int = 0
    mixed_wins: int = 0


RENAMED_FORMS = {"paper": "published"}  # as recordings of before name them


class RecordingHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a recording says of itself: the first line, or Parquet's metadata."""

    format: str
    tokenizer: str  # fingerprint of what made the token ids, "" when unknown
    form: str  # of prompts and answers: compact or published, "" when unknown
    actions: str = ""  # that the demonstrators had: both, gui or api, "" when unknown
    observations: observed.Versions = observed.FIRST  # versions that its desktops showed, smallest first
    demos: int
    tasks: list[TaskAttempts] = []  # all that were tried, solved or not; [] where tasks have no strata

    def __post_init__(self) -> None:
        if self.form in RENAMED_FORMS:
            msgspec.structs.force_setattr(self, "form", RENAMED_FORMS[self.form])


class DemoStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One step. `digest` is blake2b-128 of the payload as MessagePack, hex."""

    digest: str
    well_formed: bool
    payload: StepPayload


class Demo(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One successful demonstration: one line of a JSON lines file."""

    task: str
    route: str  # "" where members of a pool demonstrate
    member: str = ""  # who made it: a member's name, "mixed" for several, "policy"; "" goes by the route
    reason: str
    wall_s: float
    busy_s: float
    steps: list[DemoStep]

    @property
    def digest(self) -> str:
        """blake2b-128 of task, route, member and the steps' digests, hex: what makes it the same one elsewhere."""
        text = "\n".join([self.task, self.route, self.member, *(step.digest for step in self.steps)])
        return digest_of(text.encode()).hex()
