"""What one seat needs to know; data only."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec

from apis.actions.spaces import ActionSpace
from apis.prompts import Form
from runtime.quarantine import QuarantinePolicy
from runtime.settings import Section, key

# Which of an episode's screenshots are kept: the last, and with "some" all of one episode in `WHOLE_ONE_IN`, so that a
# report has whole episodes to show.
Screenshots = Literal["none", "last", "some", "all"]
WHOLE_ONE_IN = 16


class PromptConfig(Section, frozen=True, kw_only=True):
    """The deploy file's `prompt`: what the model reads and what it may answer."""

    AT: ClassVar[str] = "prompt"

    format: Annotated[Form, key("Chooses the format of prompts and answers: the short one, or the published one.")] = (
        "compact"
    )
    action_space: Annotated[
        ActionSpace,
        key("Limits what the agent and demonstrators may do: gui is mouse and keyboard, api is application functions."),
    ] = "both"


class SeatConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a seat plays episodes."""

    format: Form = "compact"  # of prompts and answers
    action_space: ActionSpace = "both"  # that the agent has
    screenshots: Screenshots = "some"  # of an episode's steps, kept with their payloads
    settle_ms: int = 1500  # the longest wait for a desktop to come to rest after an action
    call_timeout_s: float = 20.0  # one call of the guest agent; typing alone may take it 16 s
    lease_timeout_s: float = 60.0  # for a booted desktop
    setup_timeout_s: float = 30.0
    verify_timeout_s: float = 30.0
    generate_timeout_s: float = 60.0
    quarantine: QuarantinePolicy = QuarantinePolicy()
