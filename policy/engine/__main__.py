"""`python -P -m policy.engine --model-path DIR (--port P | --fd N)`: one embedded engine process."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import socket
import sys
from typing import Any

import msgspec
import torch
import uvloop

from policy.engine.core import EngineOptions
from policy.engine.server import serving
from policy.errors import EngineError
from policy.hf_folder import DTYPES
from runtime.errors import ConfigError
from runtime.http import LOOPBACK, Guard
from runtime.program import TOKEN_ENV, die_with, stop_event

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
    if TOKEN_ENV not in os.environ:
        logging.getLogger("engine").info("programs send the header Authorization: Bearer %s", guard.token)
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
        logging.getLogger("engine").error("%s", error)
        return _EXIT_UNUSABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
