"""SGLang's control endpoints, and the two extensions that keep a weight version resident."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch
from aiohttp import web

from policy.engine.core import EngineCore
from policy.engine.generate import json_response
from policy.engine.model import EngineWeights, load_weights
from policy.engine.protocol import BadRequest
from policy.engine.worker import EngineThread
from policy.errors import EngineError
from policy.hf_folder import DTYPES


def loads(core: EngineCore) -> dict[str, Any]:
    """Body of /v1/loads: SGLang's names, and `EngineFigures`."""
    used = sum(sequence.computed for sequence in core.scheduler.running)
    load = {
        "num_running_reqs": len(core.scheduler.running),
        "num_waiting_reqs": len(core.scheduler.waiting),
        "num_used_tokens": used,
        "token_usage": used / (core.options.max_running_requests * core.length),
        "figures": msgspec.to_builtins(core.figures),
    }
    return {"timestamp": time.time(), "version": "computerrl-engine", "loads": [load]}


class _Update(msgspec.Struct):
    """/update_weights_from_disk; keys without a meaning here are ignored.

    Extensions: with `retract_running` the new weights compute sequences in flight again, as between a retracting pause
    and its end. Weights whose files have another `digest` are refused. An adapter at `adapter_path` is merged into
    them, and the digest is the adapter's.
    """

    model_path: str
    weight_version: str | None = None
    abort_all_requests: bool = False
    retract_running: bool = False
    digest: str = ""
    adapter_path: str = ""


class _Pause(msgspec.Struct):
    mode: str = "abort"


class _Abort(msgspec.Struct):
    rid: str = ""
    abort_all: bool = False


class _Pin(msgspec.Struct):
    weight_version: str
    model_path: str


class _Unpin(msgspec.Struct):
    weight_version: str


BodyT = TypeVar("BodyT")


async def _read(request: web.Request, kind: type[BodyT]) -> BodyT:
    try:
        return msgspec.json.decode(await request.read(), type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadRequest({"object": "error", "message": str(error), "code": 400}) from error


class Control:
    """Handlers of everything but /generate."""

    def __init__(self, engine: EngineThread) -> None:
        self._engine = engine
        self._device = torch.device(engine.core.options.device)
        self._dtype = DTYPES[engine.core.options.dtype]
        self._loading = asyncio.Lock()  # two loads at once would take twice the memory and race for the name
        self._started = int(time.time())

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/update_weights_from_disk", self.update),
            web.post("/pin_weights", self.pin),
            web.post("/unpin_weights", self.unpin),
            web.post("/pause_generation", self.pause),
            web.post("/continue_generation", self.resume),
            web.post("/abort_request", self.abort),
            web.post("/flush_cache", self.flush),
            web.get("/health", self.health),
            web.get("/model_info", self.model_info),
            web.get("/v1/models", self.models),
            web.get("/v1/loads", self.loads),
        ]

    # --- weights -------------------------------------------------------------------------------------------------

    async def _load(self, path: str, adapter: str = "") -> EngineWeights:
        merged = Path(adapter) if adapter else None
        return await asyncio.to_thread(load_weights, Path(path), self._device, self._dtype, merged)

    async def update(self, request: web.Request) -> web.Response:
        body = await _read(request, _Update)

        def swap(core: EngineCore) -> int:
            core.install(weights, body.weight_version, body.model_path, retract=body.retract_running)
            return len(core.scheduler.running) if core.scheduler.paused else 0

        async with self._loading:
            try:
                weights = await self._load(body.model_path, body.adapter_path)
                if body.digest and body.digest != weights.digest:
                    raise EngineError(f"{body.model_path} has digest {weights.digest}, not {body.digest}")
                if body.abort_all_requests:
                    await self._engine.abort(lambda _: True)
                paused = await self._engine.call(swap)
            except EngineError as error:
                return json_response({"success": False, "message": str(error), "num_paused_requests": 0}, 400)
        message = "Succeeded to update model weights."
        return json_response({"success": True, "message": message, "num_paused_requests": paused})

    async def pin(self, request: web.Request) -> web.Response:
        """Keep a version resident: the current one where it has that name, else loaded from `model_path`."""
        body = await _read(request, _Pin)

        def bind(core: EngineCore) -> bool:
            if core.current.name == body.weight_version:
                core.pin(body.weight_version, body.model_path, None)
            return body.weight_version in core.pinned

        async with self._loading:
            try:
                if not await self._engine.call(bind):
                    weights = await self._load(body.model_path)
                    await self._engine.call(lambda core: core.pin(body.weight_version, body.model_path, weights))
            except EngineError as error:
                return json_response({"success": False, "message": str(error)}, 400)
        return json_response({"success": True, "message": f"{body.weight_version} is resident"})

    async def unpin(self, request: web.Request) -> web.Response:
        """Let a pinned version go; unknown ones are no error."""
        body = await _read(request, _Unpin)
        await self._engine.call(lambda core: core.unpin(body.weight_version))
        return json_response({"success": True, "message": f"{body.weight_version} is not pinned"})

    # --- requests ------------------------------------------------------------------------------------------------

    async def pause(self, request: web.Request) -> web.Response:
        body = await _read(request, _Pause)
        if body.mode not in ("abort", "retract", "in_place"):
            raise BadRequest({"object": "error", "message": f"unknown pause mode {body.mode!r}", "code": 400})
        await self._engine.pause(body.mode)
        return json_response({"message": "Generation paused successfully.", "status": "ok"})

    async def resume(self, _: web.Request) -> web.Response:
        def go(core: EngineCore) -> None:
            core.scheduler.paused = False

        await self._engine.call(go)
        return json_response({"message": "Generation continued successfully.", "status": "ok"})

    async def abort(self, request: web.Request) -> web.Response:
        body = await _read(request, _Abort)
        await self._engine.abort(lambda sequence: body.abort_all or sequence.rid == body.rid)
        return web.Response()

    async def flush(self, _: web.Request) -> web.Response:
        try:
            await self._engine.call(lambda core: core.flush())
        except EngineError as error:
            return web.Response(text=f"{error}\n", status=400)
        return web.Response(text="Cache flushed.\n")

    # --- state ---------------------------------------------------------------------------------------------------

    async def health(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self._engine.alive else 503)

    async def model_info(self, _: web.Request) -> web.Response:
        def read(core: EngineCore) -> dict[str, Any]:
            return {
                "model_path": core.current.path,
                "served_model_name": core.current.path,
                "tokenizer_path": core.options.model_path,
                "is_generation": True,
                "weight_version": core.current.name,
                "weights_digest": core.current.weights.digest,
                "resident_versions": sorted({core.current.name, *core.pinned}),
                "model_type": core.arch.style,
                "vocab_size": core.arch.vocab,
                "context_length": core.length,
            }

        return json_response(await self._engine.call(read))

    async def models(self, _: web.Request) -> web.Response:
        path = self._engine.core.options.model_path
        entry = {"id": path, "object": "model", "created": self._started, "owned_by": "computerrl", "root": path}
        return json_response(
            {"object": "list", "data": [entry | {"parent": None, "max_model_len": self._engine.core.length}]}
        )

    async def loads(self, _: web.Request) -> web.Response:
        return json_response(await self._engine.call(loads))
