"""From the body of a chat completion, whole or as a stream of events, to the model's text. Pure.

Invariant: a body that is no completion, or ends before its stream does, raises NoCompletionError and gives no text.
"""

from __future__ import annotations

import msgspec

CUT = {
    "length": "it was cut at {} tokens",
    "max_tokens": "it was cut at {} tokens",
    "model_length": "it was cut at the model's own length",
    "content_filter": "the endpoint withheld the rest",
}  # by finish_reason, why an answer is not whole
_DATA, _DONE = b"data:", b"[DONE]"


class NoCompletionError(ValueError):
    """What came is no chat completion."""


class Completed(msgspec.Struct, frozen=True):
    """An answer; `cut` says why it is not whole, where it is not."""

    text: str
    cut: str = ""


class _Part(msgspec.Struct, frozen=True):
    type: str = "text"
    text: str = ""


class _Message(msgspec.Struct, frozen=True):
    content: str | list[_Part] | None = None


class _Choice(msgspec.Struct, frozen=True):
    message: _Message | None = None
    delta: _Message | None = None  # of a stream's event
    finish_reason: str | None = None


class _Completion(msgspec.Struct, frozen=True):
    choices: list[_Choice]


def completed(raw: bytes, max_tokens: int) -> Completed:
    """The answer in `raw`, the body of a response with status 200. Raises NoCompletionError."""
    try:
        streamed = raw.lstrip().startswith((_DATA, b":", b"event:"))
        text, finish = _streamed(raw) if streamed else _whole(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NoCompletionError(str(error)) from error
    return Completed(text, CUT.get(finish, "").format(max_tokens))


def _whole(raw: bytes) -> tuple[str, str]:
    found = msgspec.json.decode(raw, type=_Completion)
    if not found.choices or found.choices[0].message is None:
        raise NoCompletionError("no choice in the completion")
    return _text(found.choices[0].message), found.choices[0].finish_reason or ""


def _streamed(raw: bytes) -> tuple[str, str]:
    pieces, finish, ended = [], "", False
    for line in raw.splitlines():
        if not line.startswith(_DATA):
            continue
        data = line[len(_DATA) :].strip()
        if data == _DONE:
            ended = True
            break
        for choice in msgspec.json.decode(data, type=_Completion).choices[:1]:
            pieces += [_text(choice.delta)] if choice.delta else []
            finish = choice.finish_reason or finish
    if not ended and not finish:
        raise NoCompletionError("the stream ended before its answer did")
    return "".join(pieces), finish


def _text(message: _Message) -> str:
    content = message.content or ""
    if isinstance(content, str):
        return content
    # In parts; a part that thinks has another type.
    return "".join(part.text for part in content if part.type in ("text", "output_text"))
