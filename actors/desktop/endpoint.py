"""Asks a model behind a server that speaks the OpenAI chat completions protocol.

Invariant: every try has a deadline, and no more of an answer is ever in memory than its bound. No more requests are
open than the endpoint allows. The key goes into one header and nowhere else. An answer is whole only where its reason
to end says so. A request that fails for good raises `EndpointDown` with its cause and without the key.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2
import msgspec

from actors.desktop.config import EndpointConfig
from actors.errors import DesktopFault
from runtime.supervision import Backoff

Message = Mapping[str, Any]  # role and content, a text or parts

MAX_ANSWER_BYTES = 1 << 20  # of a body, and of an event of a stream
MAX_STREAM_BYTES = 32 << 20  # of a whole stream, a few hundred bytes a token
MAX_EVENTS = 1 << 18  # of a whole stream
MAX_SAID = 200  # characters of a refusal's body that an error repeats
TOO_LARGE = 413
_CONTEXT = ("context length", "context_length", "context window", "longer than the model", "maximum context")


class EndpointDown(DesktopFault):
    """No answer within the tries allowed, or one that no later try will better.

    `status` is that of the server's answer where it refused, else 0.
    """

    def __init__(self, cause: str, text: str, status: int = 0) -> None:
        super().__init__(cause, text, "sampler")
        self.status = status


class _Named(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Named]


class PromptRefused(EndpointDown):
    """The server takes no prompt as long as this."""


class _AgainError(Exception):
    """This try failed; the next may not."""

    def __init__(self, cause: str, text: str, after_s: float = 0.0) -> None:
        super().__init__(text)
        self.cause = cause
        self.after_s = after_s


class Endpoint:
    """One server, called `name` in errors. Usable from any task of one event loop."""

    def __init__(self, config: EndpointConfig, key: str, name: str = "") -> None:
        self._config = config
        self._key = key
        self._name = name or config.model
        # An answer that is packed could be larger than it seems.
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=config.concurrent)
        self._client = httpx2.AsyncClient(headers=headers, timeout=None, limits=limits, trust_env=False)
        self._free = asyncio.Semaphore(config.concurrent)
        self.tokens = 0  # of all answers so far, by the server's own counts
        self._not_before = 0.0  # time.monotonic() until which the server asked to be left alone

    async def close(self) -> None:
        await self._client.aclose()

    async def complete(
        self, messages: Sequence[Message], seed: int, *, temperature: float, max_tokens: int
    ) -> Completed:
        """The model's answer to chat `messages`; `seed` is passed on and draws the back-off. Raises EndpointDown."""
        config = self._config
        body = msgspec.json.encode(
            {
                "model": config.model,
                "messages": list(messages),
                "temperature": temperature,
                config.length_key: max_tokens,
                "seed": seed % 2**31,
                **({"top_p": config.top_p} if config.top_p is not None else {}),
                **({"stop": config.stop} if config.stop else {}),
                **({"stream": True} if config.stream else {}),
            }
        )
        jitter = random.Random(seed)  # noqa: S311 - spreads retries, nothing secret
        backoff = Backoff(first_s=config.first_backoff_s, longest_s=config.longest_backoff_s)
        deadline = time.monotonic() + config.answer_s
        for tried in range(1, config.retries + 2):
            try:
                async with self._free:
                    await self._let_alone(deadline)
                    return await self._try(body, max_tokens)
            except _AgainError as error:
                if tried > config.retries:
                    raise EndpointDown(error.cause, f"{self._name}: {error}, {tried} tries") from error
                self._not_before = max(self._not_before, time.monotonic() + error.after_s)
                if self._not_before <= deadline:
                    await asyncio.sleep(backoff.delay_s(tried) * jitter.uniform(0.5, 1.0))
        raise AssertionError("the loop returns or raises")

    async def models(self) -> list[str]:
        """Names of the models that the server lists; none where it lists none."""
        try:
            async with asyncio.timeout(self._config.timeout_s), self._client.stream("GET", self._at("models")) as reply:
                raw = await _whole(reply, MAX_ANSWER_BYTES)
            return [model.id for model in msgspec.json.decode(raw, type=_Models).data]
        except (TimeoutError, httpx2.HTTPError, TooLongError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return []

    async def _let_alone(self, deadline: float) -> None:
        """Wait as long as the server asked any request to. Raises EndpointDown where that ends past `deadline`."""
        wait_s = self._not_before - time.monotonic()
        if self._not_before > deadline:
            text = f"{self._name}: it asks to wait {wait_s:.0f} s more, longer than an answer may take"
            raise EndpointDown("endpoint_limited", text)
        await asyncio.sleep(max(0.0, wait_s))

    def _at(self, path: str) -> str:
        return f"{self._config.url.rstrip('/')}/{path}"

    async def _try(self, body: bytes, max_tokens: int) -> Completed:
        config, url = self._config, self._at("chat/completions")
        try:
            async with asyncio.timeout(config.timeout_s), self._client.stream("POST", url, content=body) as reply:
                if reply.status_code != 200:
                    raise await self._failed(reply)
                most = MAX_STREAM_BYTES if config.stream else MAX_ANSWER_BYTES
                # A long stream takes seconds to read: nothing else here waits for it.
                done = await asyncio.to_thread(completed, await _whole(reply, most), max_tokens)
                self.tokens += (done.read_tokens or 0) + (done.written_tokens or 0)
                return done
        except TimeoutError as error:
            raise _AgainError("endpoint_silent", f"no answer within {config.timeout_s:g} s") from error
        except TooLongError as error:
            raise EndpointDown("endpoint_oversized", f"{self._name}: {error}") from error
        except (httpx2.HTTPError, OSError) as error:  # without its text, which may hold what was sent
            raise _AgainError("endpoint_silent", f"connection failed ({type(error).__name__})") from error
        except GivenUpError as error:
            raise _AgainError("endpoint_gave_up", self._shown(str(error))) from error
        except NoCompletionError as error:
            raise _AgainError("endpoint_malformed", f"no chat completion: {self._shown(str(error))}") from error

    async def _failed(self, reply: httpx2.Response) -> Exception:
        status = reply.status_code
        if status in AGAIN:
            cause = "endpoint_limited" if status == LIMITED else "endpoint_broken"
            return _AgainError(cause, f"status {status}", retry_after_s(reply.headers, time.time()))
        text = (await _whole(reply, MAX_ANSWER_BYTES)).decode("utf-8", "replace")
        context = status == TOO_LARGE or any(word in text.lower() for word in _CONTEXT)
        kind = PromptRefused if context else EndpointDown
        return kind("endpoint_refused", f"{self._name}: status {status}: {self._shown(text)}", status)

    def _shown(self, text: str) -> str:
        """The beginning of a server's words on one line; some servers repeat the key that they refuse."""
        return ascii((text.replace(self._key, "***") if self._key else text)[:MAX_SAID])


async def _whole(reply: httpx2.Response, most: int) -> bytes:
    """The bytes of a reply as they came, up to the end of its stream. Raises TooLongError where they are more."""
    whole = bytearray()
    async for piece in reply.aiter_raw():
        whole += piece
        if len(whole) > most:
            raise TooLongError(f"an answer of more than {most} bytes")
        if _LAST.search(whole, max(0, len(whole) - len(piece) - 64)):  # some servers leave the connection open
            break
    return bytes(whole)


# Reasons to end by which the model ended its answer: OpenAI's, and those of TGI, Anthropic, Cohere and Gemini.
WHOLE = frozenset({"stop", "eos", "eos_token", "end_turn", "stop_sequence", "complete"})
CUT = {
    "length": "it was cut at {} tokens",
    "max_tokens": "it was cut at {} tokens",
    "model_length": "it was cut at the model's own length",
}  # by reason, why an answer is not whole
MAX_TEXT = 1 << 20  # characters of an answer and its reasoning
_DONE = "[DONE]"
_LAST = re.compile(rb"(?:^|[\r\n])data: *\[DONE\] *(?:\r\n|\n|\r(?!\n)){2}")  # the whole event, with its blank line
_BOM = b"\xef\xbb\xbf"
_HALF = re.compile("[\ud800-\udc7f\udd00-\udfff]")  # half a pair, and no byte that `surrogateescape` keeps


class NoCompletionError(ValueError):
    """What came is no chat completion."""


class GivenUpError(NoCompletionError):
    """The server gave the request up."""


class TooLongError(NoCompletionError):
    """The answer passes its bound."""


class Completed(msgspec.Struct, frozen=True):
    """An answer; `cut` says why it is not whole, where it is not. Tokens are the server's counts, None without any."""

    text: str
    cut: str = ""
    read_tokens: int | None = None
    written_tokens: int | None = None


class _Part(msgspec.Struct, frozen=True):
    type: str = "text"
    text: str | None = None


class _Message(msgspec.Struct, frozen=True):
    content: str | list[_Part] | None = None
    refusal: str | None = None  # OpenAI's, in place of a content
    reasoning_content: Any = None
    reasoning: Any = None  # newer servers' name of it
    thinking: Any = None  # and others'

    @property
    def text(self) -> str:
        if isinstance(self.content, list):  # a part that thinks has another type
            return "".join(part.text or "" for part in self.content if part.type in ("text", "output_text"))
        return self.content or self.refusal or ""

    @property
    def thought(self) -> str:
        thoughts = (self.reasoning_content, self.reasoning, self.thinking)
        return next((text for text in thoughts if isinstance(text, str) and text), "")


class _Choice(msgspec.Struct, frozen=True):
    index: int = 0
    message: _Message | None = None
    delta: _Message | None = None  # of a stream's event
    finish_reason: Any = None
    error: Any = None


class _Completion(msgspec.Struct, frozen=True):
    choices: list[_Choice] | None = None
    error: Any = None
    usage: Any = None


def completed(raw: bytes, max_tokens: int) -> Completed:
    """The answer in `raw`, the body of a reply with status 200: one JSON document, or a stream of events.

    `max_tokens` were asked for. Some servers name no reason to end. Their answer is whole where its document or its
    stream is. Raises NoCompletionError.
    """
    raw = raw.removeprefix(_BOM)
    documents, ended = ([raw], True) if raw.lstrip()[:1] in (b"{", b"[") else _events(raw)
    completions = [_completion(document) for document in documents]
    choices = [choice for completion in completions for choice in _first(completion)]
    usage = next((each.usage for each in reversed(completions) if isinstance(each.usage, dict)), {})
    tokens = [_count(usage.get(name)) for name in ("prompt_tokens", "completion_tokens")]
    messages = [message for choice in choices if (message := choice.message or choice.delta) is not None]
    if not messages:
        raise NoCompletionError("no choice in the completion")
    reasons = [choice.finish_reason for choice in choices if choice.finish_reason not in (None, "")]
    if not reasons and not ended:
        raise NoCompletionError("the stream ended before its answer did")
    for given in reasons:
        if str(given).lower() not in WHOLE | CUT.keys():
            raise GivenUpError(f"the server ended its answer with finish_reason {given!r}")
    reason = str(reasons[-1]).lower() if reasons else "stop"
    text, thought = (_joined(pieces) for pieces in zip(*((each.text, each.thought) for each in messages), strict=True))
    cut = CUT.get(reason, "").format(max_tokens)
    if text.strip() or not thought.strip():
        return Completed(text, cut, *tokens)
    # The server's parser took all words for reasoning: they are what the model answered.
    return Completed(thought, f"{cut}, all of them reasoning" if cut else "", *tokens)


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 40 else None


def _events(raw: bytes) -> tuple[list[bytes], bool]:
    """The documents of a stream, and whether it says that it has ended."""
    headers = {"content-type": "text/event-stream; charset=latin-1"}  # a character of two events stays in its bytes
    stream = httpx2.Response(200, headers=headers, content=raw, request=httpx2.Request("POST", "http://server"))
    documents: list[bytes] = []
    try:
        for event in httpx2.EventSource(stream, max_event_size=MAX_ANSWER_BYTES):
            if event.event == "error":
                raise GivenUpError(f"the server reports {event.data.encode('latin-1').decode('utf-8', 'replace')}")
            if event.data.strip() == _DONE:
                return documents, True
            if event.data.strip():
                documents.append(event.data.encode("latin-1"))
            if len(documents) > MAX_EVENTS:
                raise TooLongError(f"an answer of more than {MAX_EVENTS} events")
    except httpx2.SSEError as error:
        raise TooLongError(f"an event of more than {MAX_ANSWER_BYTES} bytes") from error
    return documents, False


def _completion(document: bytes) -> _Completion:
    try:  # not by msgspec: it refuses half of a character, whose other half may come in the next event
        return msgspec.convert(json.loads(document.decode("utf-8", "surrogateescape")), _Completion)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise NoCompletionError(str(error)) from error


def _first(completion: _Completion) -> list[_Choice]:
    """The first choice of a completion, or none. Raises GivenUpError."""
    first = [choice for choice in completion.choices or [] if choice.index == 0][:1]
    if reported := completion.error or next((choice.error for choice in first), None):
        raise GivenUpError(f"the server reports {reported}")
    return first


def _joined(pieces: Iterable[str]) -> str:
    """One text of pieces; halves of a pair, or bytes, that stand in two of them become the character."""
    text = "".join(pieces)
    if len(text) > MAX_TEXT:
        raise TooLongError(f"an answer of more than {MAX_TEXT} characters")
    paired = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _HALF.sub("\ufffd", paired).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


LIMITED = 429
# The server may answer later; 520 to 529 are what proxies and crowded services say of it.
AGAIN = frozenset({408, 409, 425, LIMITED, 500, 502, 503, 504, *range(520, 530)})


def retry_after_s(headers: Mapping[str, str], now: float) -> float:
    """Seconds that a server asks to wait by `Retry-After`, a number or a date (RFC 9110, 10.2.3); 0 where it does not.

    `retry-after-ms`, which some servers send with it, is exact. `headers` are found in any case of letters; `now` is in
    seconds since 1970.
    """
    for name, of_a_second in (("retry-after-ms", 1000), ("retry-after", 1)):
        with suppress(ValueError):
            if math.isfinite(seconds := float(headers.get(name, "")) / of_a_second):
                return max(0.0, seconds)
    try:
        date = parsedate_to_datetime(headers.get("retry-after", ""))
        return max(0.0, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now)
    except (ValueError, TypeError, OverflowError, OSError):
        return 0.0
