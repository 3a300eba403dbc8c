"""The /generate endpoint: bodies become sequences, snapshots become SGLang's answers.

Ids are checked against the vocabulary and the context length before the model sees them. Text that a client sends
becomes no special token. A client that goes away takes its sequences with it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator
from collections.abc import Sequence as List
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web
from tokenizers import Tokenizer

from policy.engine.protocol import BadRequest, GenerateBody, SamplingParams, read_body, read_params, refuse
from policy.engine.scheduler import Draw, Finish, Sequence
from policy.engine.worker import EngineThread, SequenceSnapshot, Subscription
from policy.errors import EngineBusy, EngineError


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


_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class _Item:
    """One response to be drawn and how it is reported."""

    sequence: Sequence
    params: SamplingParams
    logprobs: bool
    score_from: int  # first reported prompt position; the prompt's length when none is
    texts: bool


def json_response(value: Any, status: int = 200) -> web.Response:
    """A JSON answer."""
    return web.Response(body=_encode(value), status=status, content_type="application/json")


class GenerateHandler:
    """Handler of /generate."""

    def __init__(
        self, engine: EngineThread, text: TextTokenizer, length: int, vocab: int, eos: tuple[int, ...]
    ) -> None:
        self._engine, self._text, self._length, self._vocab = engine, text, length, vocab
        self._eos = frozenset(eos)

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        try:
            body = read_body(await request.read())
            items, single = self._items(body)
            subscriptions = await self._submit(items, body.weight_version)
        except BadRequest as error:
            return json_response(error.body, 400)
        except EngineBusy as error:
            return json_response({"error": {"message": str(error), "code": 503, "retryable": True}}, 503)
        except EngineError as error:
            return json_response({"error": {"message": str(error)}}, 400)
        try:
            if body.stream:
                return await self._stream(request, subscriptions, items)
            answers = [
                self._answer(await subscription.next(), item)
                for subscription, item in zip(subscriptions, items, strict=True)
            ]
        except EngineError as error:
            return json_response({"error": {"message": str(error)}}, 500)
        finally:
            self._engine.discard(subscriptions)
        return json_response(answers[0] if single else answers)

    async def growing(self, body: GenerateBody) -> AsyncGenerator[dict[str, Any], None]:
        """The answer to a body with a single prompt; with `stream` each time that it has grown.

        Closing the iterator ends the answer. Raises EngineError: BadRequest, EngineBusy, or a failure.
        """
        items, _ = self._items(body)
        subscriptions = await self._submit(items, body.weight_version)
        try:
            while True:
                snapshot = await subscriptions[0].next()
                yield self._answer(snapshot, items[0])
                if snapshot.finish is not None:
                    return
        finally:
            self._engine.discard(subscriptions)

    async def _submit(self, items: list[_Item], version: str | None) -> list[Subscription]:
        sequences = [item.sequence for item in items]
        for sequence in sequences:
            if self._engine.knows(sequence.rid):
                raise refuse(f"Duplicate request ID detected: {sequence.rid}")
        return await self._engine.submit(sequences, version)

    async def _stream(
        self, request: web.Request, subscriptions: list[Subscription], items: list[_Item]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for index, (subscription, item) in enumerate(zip(subscriptions, items, strict=True)):
            while True:
                snapshot = await subscription.next()
                answer = self._answer(snapshot, item)
                if len(items) > 1:
                    answer["index"] = index
                await response.write(b"data: " + _encode(answer) + b"\n\n")
                if snapshot.finish is not None:
                    break
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    # --- request -------------------------------------------------------------------------------------------------

    def _items(self, body: GenerateBody) -> tuple[list[_Item], bool]:
        """Responses to draw, `n` per prompt and in prompt order, and whether the answer is a bare object."""
        prompts, single = self._prompts(body)
        count = len(prompts)
        params = read_params(bytes(body.sampling_params), count)
        flags = _spread(body.return_logprob or False, count, "return_logprob")
        starts = _spread(-1 if body.logprob_start_len is None else body.logprob_start_len, count, "logprob_start_len")
        names = self._names(body.rid, count)
        items: list[_Item] = []
        for prompt, param, flag, start, name in zip(prompts, params, flags, starts, names, strict=True):
            room = self._check(prompt, param)
            score_from = start if flag and start >= 0 else len(prompt)
            if score_from > len(prompt):
                raise refuse(f"logprob_start_len ({start}) is beyond the input ({len(prompt)} tokens).")
            for sample in range(param.n):
                draw = Draw(
                    max_new_tokens=room,
                    temperature=param.temperature,
                    top_p=param.top_p,
                    top_k=max(0, param.top_k),
                    min_p=param.min_p,
                    stop_ids=self._stops(param),
                    seed=secrets.randbits(63) if param.sampling_seed is None else param.sampling_seed + sample,
                )
                sequence = Sequence(
                    rid=name if param.n == 1 else f"{name}_{sample}",
                    ids=list(prompt),
                    draw=draw,
                    score_at=score_from if score_from < len(prompt) else None,
                    stream=body.stream,
                    received_s=time.monotonic(),
                )
                items.append(_Item(sequence, param, flag, score_from, body.return_text_in_logprobs))
        if len({item.sequence.rid for item in items}) != len(items):
            raise refuse("Duplicate request ID detected within the batch")
        return items, single and len(items) == 1

    def _prompts(self, body: GenerateBody) -> tuple[list[list[int]], bool]:
        if (body.text is None) == (body.input_ids is None):
            raise refuse("Either text or input_ids should be provided, and not both.")
        if body.text is not None:
            texts = [body.text] if isinstance(body.text, str) else body.text
            return [self._text.encode(text) for text in texts], isinstance(body.text, str)
        ids = body.input_ids or []
        if not ids:
            raise refuse("input_ids is empty.")
        if all(isinstance(one, int) for one in ids):
            return [[one for one in ids if isinstance(one, int)]], True
        if any(isinstance(one, int) for one in ids):
            raise refuse("input_ids mixes ids and lists of ids.")
        return [one for one in ids if isinstance(one, list)], False

    @staticmethod
    def _names(rid: str | list[str] | None, count: int) -> list[str]:
        if isinstance(rid, list):
            if len(rid) != count:
                raise refuse(f"{len(rid)} request ids for {count} prompts")
            return rid
        if rid is not None:
            return [rid] if count == 1 else [f"{rid}_{i}" for i in range(count)]
        return [secrets.token_hex(16) for _ in range(count)]

    def _check(self, prompt: List[int], params: SamplingParams) -> int:
        """Refuse what the model can't take; returns the number of tokens that may be drawn."""
        if not prompt:
            raise refuse("The input is empty.")
        if min(prompt) < 0 or max(prompt) >= self._vocab:
            wrong = min(prompt) if min(prompt) < 0 else max(prompt)
            raise refuse(f"The input holds the token id {wrong}, the vocabulary has {self._vocab} tokens.")
        if len(prompt) >= self._length:
            raise refuse(
                f"The input ({len(prompt)} tokens) is longer than the model's context length ({self._length} tokens)."
            )
        room = self._length - len(prompt)
        if params.max_new_tokens is not None and params.max_new_tokens > room:
            raise refuse(
                f"Requested token count exceeds the model's maximum context length of {self._length} tokens: "
                f"{len(prompt)} tokens from the input and {params.max_new_tokens} tokens for the completion."
            )
        return room if params.max_new_tokens is None else params.max_new_tokens

    def _stops(self, params: SamplingParams) -> frozenset[int]:
        # ignore_eos switches off stop_token_ids too: SGLang returns before it looks at either.
        return frozenset() if params.ignore_eos else self._eos | frozenset(params.stop_token_ids or ())

    # --- answer --------------------------------------------------------------------------------------------------

    def _answer(self, snapshot: SequenceSnapshot, item: _Item) -> dict[str, Any]:
        shown = snapshot.output
        finish = snapshot.finish
        if finish is not None and finish.kind == "stop" and not item.params.no_stop_trim:
            shown = shown[:-1]
        spans = [{"version": span.version, "start": span.start, "end": span.end} for span in snapshot.spans]
        meta: dict[str, Any] = {
            "id": snapshot.rid,
            "finish_reason": _finish_reason(finish, len(snapshot.output)),
            "prompt_tokens": len(snapshot.prompt),
            "weight_version": snapshot.version,
            "weight_versions": spans,
            "num_retractions": snapshot.retractions,
            "completion_tokens": len(snapshot.output),
            "cached_tokens": snapshot.cached,
            "e2e_latency": snapshot.wall_s,
            "queue_time": snapshot.queue_s,
            "first_token_latency": snapshot.first_token_s,
        }
        if item.logprobs:
            meta["input_token_logprobs"] = self._scored(snapshot, item)
            meta["output_token_logprobs"] = self._triples(snapshot.logprobs, snapshot.output, item)
            meta["output_token_logprobs_length"] = len(snapshot.output)
        text = self._text.decode(shown, skip_special=item.params.skip_special_tokens)
        return {"text": text, "output_ids": snapshot.output, "meta_info": meta}

    def _scored(self, snapshot: SequenceSnapshot, item: _Item) -> list[list[Any]]:
        ids = snapshot.prompt[item.score_from :]
        return self._triples([None, *snapshot.prompt_logprobs], ids, item) if ids else []

    def _triples(self, logprobs: List[float | None], ids: list[int], item: _Item) -> list[list[Any]]:
        # Zip stops at the shorter one: an aborted prompt may be scored in part.
        if not item.texts:
            return [[logprob, token, None] for logprob, token in zip(logprobs, ids, strict=False)]
        texts = [self._text.decode([token], skip_special=False) for token in ids]
        return [[logprob, token, text] for logprob, token, text in zip(logprobs, ids, texts, strict=False)]


def _spread(value: Any, count: int, name: str) -> list[Any]:
    if not isinstance(value, list):
        return [value] * count
    if len(value) != count:
        raise refuse(f"{len(value)} values of {name} for {count} prompts")
    return value


def _finish_reason(finish: Finish | None, length: int) -> dict[str, Any] | None:
    if finish is None:
        return None
    if finish.kind == "stop":
        return {"type": "stop", "matched": finish.matched}
    if finish.kind == "length":
        return {"type": "length", "length": length}
    return {"type": "abort", "message": finish.message, "status_code": finish.status, "err_type": None}
