"""`python -P -m policy.engine --model-path DIR (--port P | --fd N)`: one embedded engine process."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import torch
import uvloop
from aiohttp import web

from policy.engine.chat import ChatHandler
from policy.engine.control import Control
from policy.engine.core import EngineCore, EngineOptions
from policy.engine.generate import GenerateHandler, json_response, load_tokenizer
from policy.engine.model import load_weights
from policy.engine.protocol import BadRequest
from policy.engine.worker import EngineThread
from policy.errors import EngineError
from policy.hf_folder import DTYPES
from runtime.errors import ConfigError
from runtime.http import LOOPBACK, Guard, served
from runtime.program import TOKEN_ENV, die_with, stop_event

_log = logging.getLogger("engine")
_MAX_BODY_BYTES = 64 << 20

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def _errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except BadRequest as error:
        return json_response(error.body, 400)
    except EngineError as error:
        return json_response({"error": {"message": str(error)}}, 503)


def build_app(engine: EngineThread, folder: Path) -> web.Application:
    """All routes over one engine of the model in `folder`. Raises EngineError."""
    app = web.Application(middlewares=[_errors], client_max_size=_MAX_BODY_BYTES)
    generate = GenerateHandler(engine, load_tokenizer(folder))
    app.router.add_post("/generate", generate)
    app.router.add_put("/generate", generate)
    app.router.add_post("/v1/chat/completions", ChatHandler(generate, folder))
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
    app = build_app(engine, folder)
    try:
        async with served(app, guard, place, flag="--port", end_s=1.0, cancels=True) as port:
            where = f"{guard.host}:{port}" if port else "a Unix socket"
            _log.info("serving %s as %s on %s", options.model_path, options.weight_version, where)
            yield failed
    finally:
        await engine.stop()


_EXIT_UNUSABLE = 2  # the model can't be served: a restart does not help


# SGLang's names of the options of one number.
_NUMBERS = {
    "--max-running-requests": "max_running_requests",
    "--max-queued-requests": "max_queued_requests",
    "--context-length": "context_length",
    "--max-total-tokens": "cache_tokens",
    "--block-tokens": "block_tokens",
    "--chunked-prefill-size": "prefill_tokens",
    "--max-pinned-versions": "max_pinned",
}


def _arguments() -> tuple[argparse.Namespace, EngineOptions]:
    defaults = {field.name: field.default for field in msgspec.structs.fields(EngineOptions)}
    parser = argparse.ArgumentParser(prog="policy.engine", description="Serve a small decoder by SGLang's contract.")
    parser.add_argument("--model-path", required=True, help="Hugging Face folder")
    parser.add_argument("--host", default=LOOPBACK)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--port", type=int, help="0 picks a free one")
    where.add_argument("--fd", type=int, help="a listening socket inherited from the parent")
    parser.add_argument("--weight-version", default=defaults["weight_version"])
    parser.add_argument("--device", default=defaults["device"])
    parser.add_argument("--dtype", default=defaults["dtype"], choices=sorted(DTYPES))
    for flag, name in _NUMBERS.items():
        parser.add_argument(flag, dest=name, type=int, default=defaults[name])
    parser.add_argument("--threads", type=int, default=1, help="threads of one matrix product")
    parser.add_argument("--die-with-parent", type=int, metavar="PID", help="end when this parent process ends")
    arguments = parser.parse_args()
    return arguments, EngineOptions(**{name: getattr(arguments, name) for name in defaults})


async def _serve(arguments: argparse.Namespace, options: EngineOptions) -> None:
    place = socket.socket(fileno=arguments.fd) if arguments.port is None else int(arguments.port)
    guard = Guard(arguments.host)
    if not os.environ.get(TOKEN_ENV):
        _log.info("programs send the header Authorization: Bearer %s", guard.token)
    with stop_event() as stop:
        async with serving(options, guard, place) as failed:
            stopped = asyncio.ensure_future(stop.wait())
            either: set[asyncio.Future[Any]] = {stopped, failed}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            await asyncio.gather(stopped, return_exceptions=True)
            if failed.done():
                failed.result()


def main() -> int:
    """Run until a signal stops it; exit status 2 when the model can't be served."""
    arguments, options = _arguments()
    if arguments.die_with_parent is not None:
        die_with(arguments.die_with_parent)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    torch.set_num_threads(arguments.threads)
    try:
        uvloop.run(_serve(arguments, options))
    except (EngineError, ConfigError) as error:
        _log.error("%s", error)
        return _EXIT_UNUSABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
