"""Text to token ids and back. Invariant: content handed to `encode` never yields a special token, whatever it says.

Our own models use five special tokens and the chat form `<|user|> prompt <|end|> <|assistant|> response <|end|>`, turn
after turn. A system text stands before it as `<|system|> text <|end|>`. Any other Hugging Face folder is served through
its own chat template.
"""

from __future__ import annotations

import os
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from tokenizers import Tokenizer as Backend

from policy.architecture import end_ids
from policy.known import KnownParts
from runtime.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

PAD, END, USER, ASSISTANT, SYSTEM = SPECIAL_TOKENS = ("<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>")

CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)

# Each text is encoded by itself: the library's threads would gain nothing, and it warns of every fork beside them.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

SHAPES = 256  # of conversations, by system text and number of turns, whose template stays encoded

# Begins the stand-ins that are put through a foreign chat template; the contents' ids take their places afterwards.
_MARK = "Qs7Xv"

Exchange = tuple[str, str]  # an earlier turn of the user, and the assistant's answer


class _ChatForm(Protocol):
    """Wraps contents, whose ids have four bytes each, into the model's chat form."""

    eos_id: int
    stop_ids: tuple[int, ...]

    def wrap(self, turns: Sequence[bytes], system: bytes | None) -> array[int]: ...


class _OwnForm:
    """The chat form of the models built here."""

    def __init__(self, backend: Backend) -> None:
        vocabulary = backend.get_vocab(with_added_tokens=True)
        _, self.eos_id, self._user, self._assistant, self._system = (vocabulary[token] for token in SPECIAL_TOKENS)
        self.stop_ids: tuple[int, ...] = (self.eos_id,)

    def wrap(self, turns: Sequence[bytes], system: bytes | None) -> array[int]:
        contents = [] if system is None else [(self._system, system)]
        contents += [(self._assistant if number % 2 else self._user, content) for number, content in enumerate(turns)]
        ids = array("I")
        for speaker, content in contents:
            ids.append(speaker)
            ids.frombytes(content)
            ids.append(self.eos_id)
        ids.append(self._assistant)
        return ids


class _TemplateForm:
    """A foreign model's chat template, applied around contents that are tokenised apart from it.

    What a template says around contents is the same for all conversations of as many turns, with or without a system
    text, so it is rendered and encoded once for each such shape.
    """

    def __init__(self, folder: Path, backend: Backend) -> None:
        from transformers import AutoTokenizer

        try:
            template = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        except Exception as error:  # whatever a stranger's files make the library raise
            raise ConfigError(f"{folder}: the tokenizer's files can't be read: {_line(error)}") from error
        if not template.chat_template:
            raise ConfigError(f"{folder}: the tokenizer has no chat template")
        if template.eos_token_id is None:
            raise ConfigError(f"{folder}: the tokenizer names no end-of-turn token")
        self._template, self._backend = template, backend
        self._shapes: dict[tuple[int, bool], list[array[int]]] = {}
        ends = {int(template.eos_token_id), *end_ids(folder)}
        self.stop_ids = tuple(sorted(ends))
        self.eos_id = self._end_of_turn(int(template.eos_token_id))

    def _end_of_turn(self, default: int) -> int:
        """What stands behind the assistant's answer within a conversation, where the model ends its answers by that."""
        try:
            behind = self._around(3, system=False)[2]
        except ConfigError:  # a template may refuse a second question
            return default
        return behind[0] if behind and behind[0] in self.stop_ids else default

    def wrap(self, turns: Sequence[bytes], system: bytes | None) -> array[int]:
        before, *behind = self._around(len(turns), system=system is not None)
        ids = before[:]
        for content, after in zip(turns if system is None else (system, *turns), behind, strict=True):
            ids.frombytes(content)
            ids.extend(after)
        return ids

    def _around(self, turns: int, *, system: bool) -> list[array[int]]:
        """The ids before, between and after the contents of so many turns. Raises ConfigError."""
        found = self._shapes.get((turns, system))
        if found is None:
            messages = [{"role": "system", "content": f"{_MARK}system"}] if system else []
            for number in range(turns):
                role = "assistant" if number % 2 else "user"
                messages.append({"role": role, "content": f"{_MARK}{number}{role}"})
            found = _around(self._template, self._backend, messages)
            if len(self._shapes) < SHAPES:
                self._shapes[turns, system] = found
        return found


def _around(template: Any, backend: Backend, messages: list[dict[str, str]]) -> list[array[int]]:
    """The ids before, between and after the messages' contents. Raises ConfigError.

    `backend` makes special tokens, and only the template's own text passes through it.
    """
    try:
        rest = str(template.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
    except Exception as error:  # a template is a program of a stranger's
        raise ConfigError(f"the chat template fails: {_line(error)}") from error
    pieces = []
    for message in messages:
        before, marked, rest = rest.partition(message["content"])
        if not marked:
            raise ConfigError("the chat template drops or rewrites a message's content")
        pieces.append(before)
    return [array("I", backend.encode(piece, add_special_tokens=False).ids) for piece in (*pieces, rest)]


def _line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]


def _sound(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


class Tokenizer:
    """A loaded tokenizer; cheap to call, safe to share between threads."""

    def __init__(self, content: Backend, form: _ChatForm) -> None:
        self._content = content
        self._form = form
        self._parts = KnownParts(content)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read `tokenizer.json` of a Hugging Face folder. Raises ConfigError when it can't serve a chat."""
        folder = Path(folder)
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ConfigError(f"{path} is missing: not a Hugging Face folder with a fast tokenizer")
        try:
            text = path.read_text(encoding="utf-8")
            content = Backend.from_str(text)
        except Exception as error:  # the library raises nothing narrower
            raise ConfigError(f"{path} is no tokenizer: {_line(error)}") from error
        content.encode_special_tokens = True
        content.no_padding()
        content.no_truncation()
        if all(content.token_to_id(token) is not None for token in SPECIAL_TOKENS):
            return cls(content, _OwnForm(content))
        return cls(content, _TemplateForm(folder, Backend.from_str(text)))

    @property
    def own(self) -> bool:
        """Whether this is the vocabulary and the chat form of the models built here."""
        return isinstance(self._form, _OwnForm)

    @property
    def eos_id(self) -> int:
        """The end-of-turn token: ends every response, stops generation."""
        return self._form.eos_id

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """What the model may end an answer with: the end-of-turn token, and those of generation_config.json."""
        return self._form.stop_ids

    @property
    def largest_id(self) -> int:
        """The largest id that a text can become; -1 without any id."""
        return max(self._content.get_vocab(with_added_tokens=True).values(), default=-1)

    def encode(self, text: str) -> list[int]:
        """Content to ids without any special token. A lone surrogate is written out as its escape first."""
        return memoryview(self._parts.ids(_sound(text))).cast("I").tolist()

    def decode(self, ids: Sequence[int]) -> str:
        """Ids to text, special tokens shown by name; bytes that are no UTF-8 become U+FFFD."""
        return str(self._content.decode(list(ids), skip_special_tokens=False))

    def prompt_ids(self, user_text: str, system: str | None = None, earlier: Sequence[Exchange] = ()) -> list[int]:
        """The prompt up to and including the token after which the model answers, behind `earlier` turns."""
        return self.packed_prompt(user_text, system, earlier).tolist()

    def packed_prompt(self, user_text: str, system: str | None = None, earlier: Sequence[Exchange] = ()) -> array[int]:
        """The ids of `prompt_ids`, four bytes each."""
        again = self._parts.ids_again
        turns = [again(_sound(text)) for exchange in earlier for text in exchange]
        turns.append(self._parts.ids(_sound(user_text)))
        return self._form.wrap(turns, None if system is None else again(_sound(system)))

    async def close(self) -> None:
        """A host closes what its actors share; nothing is open here."""

    def response_ids(self, text: str) -> list[int]:
        """A response as the model should emit it: its ids and the end-of-turn token."""
        return [*self.encode(text), self.eos_id]
