"""The /generate endpoint: bodies become sequences, snapshots become SGLang's answers."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator
from collections.abc import Sequence as List
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web
from tokenizers import Tokenizer

from policy.engine.protocol import BadRequest, GenerateBody, SamplingParams, read_body, read_params, refuse
from policy.engine.scheduler import Draw, Finish, Sequence
from policy.engine.worker import EngineThread
from policy.errors import EngineBusy, EngineError, PictureError
from policy.pictures import PicturePlace, picture_size, placed_in


def load_tokenizer(folder: Path) -> Tokenizer | None:
    """What makes texts of ids, None where `folder` has none. Raises EngineError for a file that can't be read."""
    path = folder / "tokenizer.json"
    try:
        return Tokenizer.from_file(str(path)) if path.exists() else None
    except Exception as error:  # the library raises nothing narrower
        raise EngineError(f"cannot read {path}: {error}") from error


_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The response to be drawn and how it is reported."""

    sequence: Sequence
    params: SamplingParams
    logprobs: bool
    score_from: int  # first reported prompt position; the prompt's length when none is


def json_response(value: Any, status: int = 200) -> web.Response:
    """A JSON answer."""
    return web.Response(body=_encode(value), status=status, content_type="application/json")


class GenerateHandler:
    """Handler of /generate."""

    def __init__(self, engine: EngineThread, text: Tokenizer | None) -> None:
        self._engine, self._text = engine, text
        self._length, arch = engine.core.length, engine.core.arch
        self._vocab, self._eos = arch.vocab, frozenset(arch.eos_ids)

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        response: web.StreamResponse | None = None
        try:
            body = read_body(await request.read())
            async with aclosing(self.growing(body)) as growing:
                async for answer in growing:
                    if not body.stream:
                        return json_response(answer)
                    if response is None:
                        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
                        await response.prepare(request)
                    await response.write(b"data: " + _encode(answer) + b"\n\n")
        except BadRequest as error:
            return json_response(error.body, 400)
        except EngineBusy as error:
            return json_response({"error": {"message": str(error), "code": 503, "retryable": True}}, 503)
        except EngineError as error:
            if response is not None:
                raise
            return json_response({"error": {"message": str(error)}}, 500)
        assert response is not None, "a sequence gives a snapshot before it ends"
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    async def growing(self, body: GenerateBody) -> AsyncGenerator[dict[str, Any], None]:
        """The answer to `body`; with `stream` each time that it has grown.

        Closing the iterator ends the answer. Raises EngineError: BadRequest, EngineBusy, or a failure.
        """
        pictures = await asyncio.to_thread(self._pictures, body) if body.image_data else self._pictures(body)
        wanted = self._wanted(body, pictures)
        try:
            subscription = await self._engine.submit(wanted.sequence, body.weight_version)
        except EngineBusy:
            raise
        except EngineError as error:
            if not self._engine.alive:
                raise
            raise refuse(str(error)) from error
        try:
            while True:
                snapshot = await subscription.next()
                yield self._answer(snapshot, wanted)
                if snapshot.finish is not None:
                    return
        finally:
            self._engine.discard(subscription)

    # --- request -------------------------------------------------------------------------------------------------

    def _pictures(self, body: GenerateBody) -> tuple[PicturePlace, ...]:
        """Those of the prompt, decoded once to know that they can be. Raises BadRequest."""
        eyes = self._engine.core.current.weights.eyes
        if eyes is None:
            if body.image_data:
                raise refuse("image_data: this model reads text alone")
            return ()
        try:
            pngs = body.pictures
            for png in pngs:
                picture_size(png, whole=True)
            return placed_in(body.input_ids, pngs, eyes.style)
        except PictureError as error:
            raise refuse(f"image_data: {error}") from error

    def _wanted(self, body: GenerateBody, pictures: tuple[PicturePlace, ...]) -> _Wanted:
        """The response to draw. Raises BadRequest."""
        prompt, rid = body.input_ids, body.rid or secrets.token_hex(16)
        params = read_params(bytes(body.sampling_params))
        room = self._room(prompt, params)
        start = -1 if body.logprob_start_len is None else body.logprob_start_len
        logprobs = bool(body.return_logprob)
        score_from = start if logprobs and start >= 0 else len(prompt)
        if score_from > len(prompt):
            raise refuse(f"logprob_start_len ({start}) is beyond the input ({len(prompt)} tokens).")
        if self._engine.knows(rid):
            raise refuse(f"Duplicate request ID detected: {rid}")
        draw = Draw(
            max_new_tokens=room,
            temperature=params.temperature,
            top_p=params.top_p,
            # ignore_eos switches off stop_token_ids too: SGLang returns before it looks at either.
            stop_ids=frozenset() if params.ignore_eos else self._eos | frozenset(params.stop_token_ids or ()),
            seed=secrets.randbits(63) if params.sampling_seed is None else params.sampling_seed,
        )
        sequence = Sequence(
            rid=rid,
            ids=list(prompt),
            draw=draw,
            score_at=score_from if score_from < len(prompt) else None,
            stream=body.stream,
            received_s=time.monotonic(),
            pictures=pictures,
        )
        return _Wanted(sequence, params, logprobs, score_from)

    def _room(self, prompt: List[int], params: SamplingParams) -> int:
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

    # --- answer --------------------------------------------------------------------------------------------------

    def _answer(self, snapshot: Sequence, wanted: _Wanted) -> dict[str, Any]:
        output = shown = snapshot.output
        finish, now = snapshot.finish, snapshot.finished_s or time.monotonic()
        if finish is not None and finish.kind == "stop" and not wanted.params.no_stop_trim:
            shown = shown[:-1]
        spans = [{"version": span.version, "start": span.start, "end": span.end} for span in snapshot.spans]
        meta: dict[str, Any] = {
            "id": snapshot.rid,
            "finish_reason": _finish_reason(finish, len(output)),
            "prompt_tokens": snapshot.prompt_len,
            "weight_version": snapshot.version,
            "weight_versions": spans,
            "num_retractions": snapshot.retractions,
            "completion_tokens": len(output),
            "cached_tokens": snapshot.cached or 0,
            "e2e_latency": max(0.0, now - snapshot.received_s),
            "queue_time": max(0.0, (snapshot.admitted_s or now) - snapshot.received_s),
            "first_token_latency": max(0.0, (snapshot.first_token_s or now) - snapshot.received_s),
        }
        if wanted.logprobs:
            meta["input_token_logprobs"] = self._scored(snapshot, wanted)
            meta["output_token_logprobs"] = _triples(snapshot.logprobs, output)
            meta["output_token_logprobs_length"] = len(output)
        skip = wanted.params.skip_special_tokens
        text = "" if self._text is None else self._text.decode(shown, skip_special_tokens=skip)
        return {"text": text, "output_ids": output, "meta_info": meta}

    @staticmethod
    def _scored(snapshot: Sequence, wanted: _Wanted) -> list[list[Any]]:
        ids = snapshot.ids[wanted.score_from : snapshot.prompt_len]
        return _triples([None, *snapshot.prompt_logprobs], ids) if ids else []


def _triples(logprobs: List[float | None], ids: list[int]) -> list[list[Any]]:
    # Zip stops at the shorter one: an aborted prompt may be scored in part.
    return [[logprob, token, None] for logprob, token in zip(logprobs, ids, strict=False)]


def _finish_reason(finish: Finish | None, length: int) -> dict[str, Any] | None:
    if finish is None:
        return None
    if finish.kind == "stop":
        return {"type": "stop", "matched": finish.matched}
    if finish.kind == "length":
        return {"type": "length", "length": length}
    return {"type": "abort", "message": finish.message, "status_code": finish.status, "err_type": None}
