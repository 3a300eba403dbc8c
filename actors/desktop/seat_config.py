"""What one seat needs to know; data only."""

from __future__ import annotations

from typing import Literal

import msgspec

from apis.actions.spaces import ActionSpace
from apis.prompts.compact import Form
from runtime.quarantine import QuarantinePolicy

# Which of an episode's screenshots are kept: the last, and with "some" all of one episode in `WHOLE_ONE_IN`, so that a
# report has whole episodes to show.
Screenshots = Literal["none", "last", "some", "all"]
WHOLE_ONE_IN = 16


class SeatConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a seat plays episodes."""

    form: Form = "compact"  # of prompts and answers
    actions: ActionSpace = "both"  # that the agent has
    screenshots: Screenshots = "some"  # of an episode's steps, kept with their payloads
    settle_ms: int = 1500  # the longest wait for a desktop to come to rest after an action
    call_timeout_s: float = 20.0  # one call of the guest agent; typing alone may take it 16 s
    lease_timeout_s: float = 60.0  # for a booted desktop
    setup_timeout_s: float = 30.0
    verify_timeout_s: float = 30.0
    generate_timeout_s: float = 60.0
    quarantine: QuarantinePolicy = QuarantinePolicy()
