"""What an engine can take. Pure.

Invariant: ids outside the vocabulary and lengths beyond the model's positions are refused before any engine sees
them. An engine may die of them.
"""

from __future__ import annotations

import msgspec

from actors.replay.messages import Sampling


class Limits(msgspec.Struct, frozen=True):
    """Vocabulary size and context length (prompt and response together) in tokens."""

    vocabulary: int
    context: int

    def refusal(self, ids: list[int], sampling: Sampling) -> str | None:
        """Why the request can never succeed, or None."""
        if not ids:
            return "the prompt is empty"
        low, high = min(ids), max(ids)
        if low < 0 or high >= self.vocabulary:
            return f"token id {low if low < 0 else high} is outside the vocabulary of {self.vocabulary}"
        if sampling.max_new_tokens < 1:
            return f"max_new_tokens is {sampling.max_new_tokens}"
        if not 0.0 <= sampling.temperature < float("inf"):
            return f"temperature is {sampling.temperature}"
        total = len(ids) + sampling.max_new_tokens
        if total > self.context:
            return (
                f"{len(ids)} prompt and {sampling.max_new_tokens} response tokens exceed the context of {self.context}"
            )
        return None
