"""What a server's chat completion says: the model's text, or why it is none. Pure.

Invariant: an answer is whole only where its reason to end says so. A body that is no completion, ends before its
answer does, or was given up by the server raises NoCompletionError and gives no text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import httpx2
import msgspec

# Reasons to end by which the model ended its answer: OpenAI's, and those of TGI, Anthropic, Cohere and Gemini.
WHOLE = frozenset({"stop", "eos", "eos_token", "end_turn", "stop_sequence", "complete"})
CUT = {
    "length": "it was cut at {} tokens",
    "max_tokens": "it was cut at {} tokens",
    "model_length": "it was cut at the model's own length",
}  # by reason, why an answer is not whole
MAX_TEXT = 1 << 20  # characters of an answer and its reasoning
_DONE = "[DONE]"
_BOM = b"\xef\xbb\xbf"
_HALF = re.compile("[\ud800-\udc7f\udd00-\udfff]")  # half a pair, and no byte that `surrogateescape` keeps


class NoCompletionError(ValueError):
    """What came is no chat completion."""


class GivenUpError(NoCompletionError):
    """The server gave the request up."""


class TooLongError(NoCompletionError):
    """The answer passes its bound."""


class Completed(msgspec.Struct, frozen=True):
    """An answer; `cut` says why it is not whole, where it is not."""

    text: str
    cut: str = ""


class _Part(msgspec.Struct, frozen=True):
    type: str = "text"
    text: str | None = None


class _Message(msgspec.Struct, frozen=True):
    content: str | list[_Part] | None = None
    refusal: str | None = None  # OpenAI's, in place of a content
    reasoning_content: Any = None
    reasoning: Any = None  # newer servers' name of it

    @property
    def text(self) -> str:
        if isinstance(self.content, list):  # a part that thinks has another type
            return "".join(part.text or "" for part in self.content if part.type in ("text", "output_text"))
        return self.content or self.refusal or ""

    @property
    def thought(self) -> str:
        return next((one for one in (self.reasoning_content, self.reasoning) if isinstance(one, str)), "")


class _Choice(msgspec.Struct, frozen=True):
    index: int = 0
    message: _Message | None = None
    delta: _Message | None = None  # of a stream's event
    finish_reason: Any = None


class _Completion(msgspec.Struct, frozen=True):
    choices: list[_Choice] | None = None
    error: Any = None


class AnswerReader:
    """An answer that comes whole, or event by event of a stream. `ended` once nothing more is to come.

    Some servers name no reason to end. Their answer is whole where its document or its stream is.
    """

    def __init__(self) -> None:
        self._said: list[str] = []
        self._thought: list[str] = []
        self._size = 0
        self._messages = 0
        self._finish: Any = None
        self.ended = False

    def event(self, event: httpx2.ServerSentEvent) -> None:
        """Take an event whose data has a character for each byte. Raises NoCompletionError."""
        data = event.data.encode("latin-1", "replace")
        if event.event == "error":
            raise GivenUpError(f"the server reports {data.decode('utf-8', 'replace')}")
        if event.data.strip() == _DONE:
            self.ended = True
        elif data.strip():
            self._take(data)

    def body(self, raw: bytes) -> None:
        """Take a completion, a JSON document. Raises NoCompletionError."""
        self._take(raw)
        self.ended = True

    def _take(self, raw: bytes) -> None:
        found = _decoded(raw)
        if found.error and not found.choices:
            raise GivenUpError(f"the server reports {found.error}")
        for choice in (found.choices or [])[:1]:
            message = choice.message or choice.delta
            if message is not None and choice.index == 0:
                self._messages += 1
                self._size += len(message.text) + len(message.thought)
                if self._size > MAX_TEXT:
                    raise TooLongError(f"an answer of more than {MAX_TEXT} characters")
                self._said.append(message.text)
                self._thought.append(message.thought)
            if choice.finish_reason not in (None, ""):
                self._finish = choice.finish_reason

    def completed(self, max_tokens: int) -> Completed:
        """The answer, asked for with `max_tokens`. Raises NoCompletionError where it is none."""
        if not self._messages:
            raise NoCompletionError("no choice in the completion")
        if self._finish is None and not self.ended:
            raise NoCompletionError("the stream ended before its answer did")
        reason = "stop" if self._finish is None else self._finish.lower() if isinstance(self._finish, str) else None
        if reason not in WHOLE and reason not in CUT:
            raise GivenUpError(f"the server ended its answer with finish_reason {self._finish!r}")
        text, thought = _joined(self._said), _joined(self._thought)
        cut = CUT.get(reason or "", "").format(max_tokens)
        if text.strip() or not thought.strip():
            return Completed(text, cut)
        # The server's parser took all words for reasoning: they are what the model answered.
        return Completed(thought, f"{cut}, all of them reasoning" if cut else "")


def completed(raw: bytes, max_tokens: int) -> Completed:
    """The answer in `raw`, the whole body of a response with status 200. Raises NoCompletionError."""
    reader = AnswerReader()
    if is_document(raw):
        reader.body(raw)
    else:
        for event in httpx2.EventSource(event_stream(raw)):
            reader.event(event)
            if reader.ended:
                break
    return reader.completed(max_tokens)


def is_document(start: bytes) -> bool:
    """Whether a body that begins with `start` is a single JSON document, and no stream of events."""
    return start.removeprefix(_BOM).lstrip()[:1] in (b"{", b"[")


def event_stream(content: bytes | Any) -> httpx2.Response:
    """A response of events in `content`, bytes or an iterator of them, with a character for each byte of theirs.

    So a character whose bytes come in two events is put together by `AnswerReader`.
    """
    if isinstance(content, bytes):
        content = content.removeprefix(_BOM)
    headers = {"content-type": "text/event-stream; charset=latin-1"}
    return httpx2.Response(200, headers=headers, content=content, request=httpx2.Request("POST", "http://server"))


def _decoded(raw: bytes) -> _Completion:
    # Not by msgspec: it refuses a character whose halves come in two events.
    try:
        document = json.loads(raw.removeprefix(_BOM).decode("utf-8", "surrogateescape"))
        return msgspec.convert(document, _Completion)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise NoCompletionError(str(error)) from error


def _joined(pieces: Iterable[str]) -> str:
    """One text of pieces; halves of a character that stand in two of them become the character."""
    text = "".join(pieces)
    if text.isascii():
        return text
    paired = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _HALF.sub("\ufffd", paired).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
