"""An episode as a conversation with a model at an endpoint: what it is shown, and what it has said.

Invariant: earlier answers come back without their reasoning. The form escapes and cuts the guest's text.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import msgspec

from actors.desktop.endpoints.client import Message
from apis.actions.reasoning import spoken
from apis.actions.spaces import ActionSpace
from apis.observation import Observation
from apis.prompts import USUAL, Form, Sight
from apis.prompts.compact import render_compact
from apis.prompts.published import render_published
from apis.prompts.system import compact_system
from apis.prompts.text import Turn

NOTHING = "nothing was answered"


class Chat:
    """One episode's. An episode's steps bound what it keeps."""

    def __init__(self, instruction: str, form: Form, space: ActionSpace, sight: Sight = USUAL) -> None:
        self._instruction = instruction
        self._form = form
        self._space: ActionSpace = space
        self._sight = sight
        self._said: dict[int, str] = {}  # by step

    def messages(
        self, observation: Observation, turns: Sequence[Turn], last: str | None, picture: bytes = b""
    ) -> list[Message]:
        """What is asked at one step; `turns` are of `remembered`, or their last ones. `picture` is a PNG, or none."""
        if self._form == "published":
            *before, now = render_published(
                self._instruction, observation.app, turns, observation, last, space=self._space, sight=self._sight
            )
            return [*before, {**now, "content": pictured(now["content"], picture)} if picture else now]
        system = compact_system(observation.app, self._space)
        user = render_compact(self._instruction, turns, observation, last, self._space)
        return [{"role": "system", "content": system}, {"role": "user", "content": user}]

    def answered(self, step: int, text: str) -> None:
        """Keep what it answered."""
        self._said[step] = spoken(text).said.strip() or NOTHING

    def remembered(self, history: Sequence[Turn]) -> list[Turn]:
        """The steps so far: its own answers without their reasoning, others' as bare actions in its form."""
        turns = []
        for step, turn in enumerate(history):
            line = turn.line or "refused"
            others = f"```python\n{line}\n```" if self._form == "published" else line
            turns.append(msgspec.structs.replace(turn, answer=self._said.get(step, others)))
        return turns


def pictured(text: str, picture: bytes) -> list[dict[str, Any]]:
    """The content of a message with `picture`, a PNG, behind its text."""
    url = f"data:image/png;base64,{b64encode(picture).decode()}"
    return [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url}}]
