"""The engine's HTTP server: SGLang's contract over TCP or a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import torch
from aiohttp import web

from policy.engine.chat import ChatHandler
from policy.engine.control import Control
from policy.engine.core import EngineCore, EngineOptions
from policy.engine.generate import GenerateHandler, TextTokenizer, json_response
from policy.engine.model import load_weights
from policy.engine.protocol import BadRequest
from policy.engine.worker import EngineThread
from policy.errors import EngineError
from policy.hf_folder import DTYPES
from runtime.http import Guard, served

_MAX_BODY_BYTES = 64 << 20

_log = logging.getLogger("engine")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def _errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except BadRequest as error:
        return json_response(error.body, 400)
    except EngineError as error:
        return json_response({"error": {"message": str(error)}}, 503)


def build_app(engine: EngineThread, text: TextTokenizer) -> web.Application:
    """All routes over one engine."""
    app = web.Application(middlewares=[_errors], client_max_size=_MAX_BODY_BYTES)
    core = engine.core
    generate = GenerateHandler(engine, text, core.length, core.arch.vocab, core.arch.eos_ids)
    app.router.add_post("/generate", generate)
    app.router.add_put("/generate", generate)
    app.router.add_post("/v1/chat/completions", ChatHandler(generate, Path(core.options.model_path)))
    app.router.add_routes(Control(engine).routes())
    return app


@contextlib.asynccontextmanager
async def serving(
    options: EngineOptions, guard: Guard, place: int | socket.socket
) -> AsyncIterator[asyncio.Future[None]]:
    """Load the model and serve it behind `guard` at `place`, as `runtime.http.served` takes it.

    Yields a future that fails when the engine does.

    Raises:
        EngineError: the weights can't be used.
        ConfigError: the address can't be had.
    """
    folder = Path(options.model_path)
    weights = await asyncio.to_thread(load_weights, folder, torch.device(options.device), DTYPES[options.dtype])
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(error: BaseException) -> None:
        if not failed.done():
            failed.set_exception(error)

    engine = EngineThread(EngineCore(options, weights), fail)
    app = build_app(engine, TextTokenizer(folder))
    try:
        async with served(app, guard, place, flag="--port", end_s=1.0, cancels=True) as port:
            where = f"{guard.host}:{port}" if port else "a Unix socket"
            _log.info("serving %s as %s on %s", options.model_path, options.weight_version, where)
            yield failed
    finally:
        await engine.stop()
