"""Text to ids and back, where the model folder has a tokenizer.json; the engine itself works on ids.

Invariant: text that a client sends is tokenised as text: no special token comes out of it.
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from policy.errors import EngineError


class TextTokenizer:
    """A tokenizer or its absence. Raises EngineError for a file that can't be read."""

    def __init__(self, folder: Path) -> None:
        path = folder / "tokenizer.json"
        self._tokenizer: Tokenizer | None = None
        if path.exists():
            try:
                self._tokenizer = Tokenizer.from_file(str(path))
            except Exception as error:  # the library raises nothing narrower
                raise EngineError(f"cannot read {path}: {error}") from error
            self._tokenizer.encode_special_tokens = True

    def encode(self, text: str) -> list[int]:
        """Raises EngineError when there is no tokenizer."""
        if self._tokenizer is None:
            raise EngineError("the model folder has no tokenizer.json: send input_ids")
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: list[int], *, skip_special: bool) -> str:
        """The text of `ids`; empty when there is no tokenizer."""
        if self._tokenizer is None:
            return ""
        return self._tokenizer.decode(ids, skip_special_tokens=skip_special)
