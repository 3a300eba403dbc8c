"""`python -P -m policy.engine --model-path DIR (--port P | --uds PATH | --fd N)`: one embedded engine process.

Invariant: the process ends with its engine, on SIGTERM or SIGINT, and with its parent when it knows its parent. Its
token comes by the environment, or is made here and written to the log once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import socket
import sys
from typing import Any

import msgspec
import torch
import uvloop

from policy.engine.options import EngineOptions
from policy.engine.server import serving
from policy.errors import EngineError
from policy.hf_folder import DTYPES
from runtime.errors import ConfigError
from runtime.http import LOOPBACK, Guard
from runtime.program import TOKEN_ENV

_PR_SET_PDEATHSIG = 1
_EXIT_UNUSABLE = 2  # the model can't be served: a restart does not help


def _arguments() -> argparse.Namespace:
    defaults = {field.name: field.default for field in _fields()}
    parser = argparse.ArgumentParser(prog="policy.engine", description="Serve a small decoder by SGLang's contract.")
    parser.add_argument("--model-path", required=True, help="Hugging Face folder")
    parser.add_argument("--host", default=LOOPBACK)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--port", type=int, help="0 picks a free one")
    where.add_argument("--uds", help="path of a Unix socket to serve on")
    where.add_argument("--fd", type=int, help="a listening socket inherited from the parent")
    parser.add_argument("--weight-version", default=defaults["weight_version"])
    parser.add_argument("--device", default=defaults["device"])
    parser.add_argument("--dtype", default=defaults["dtype"], choices=sorted(DTYPES))
    parser.add_argument("--max-running-requests", type=int, default=defaults["max_running_requests"])
    parser.add_argument("--max-queued-requests", type=int, default=defaults["max_queued_requests"])
    parser.add_argument("--context-length", type=int, default=None)
    parser.add_argument("--max-total-tokens", type=int, default=defaults["cache_tokens"], help="prefix cache, tokens")
    parser.add_argument("--block-tokens", type=int, default=defaults["block_tokens"])
    parser.add_argument("--chunked-prefill-size", type=int, default=defaults["prefill_tokens"])
    parser.add_argument("--max-pinned-versions", type=int, default=defaults["max_pinned"])
    parser.add_argument("--threads", type=int, default=1, help="threads of one matrix product")
    parser.add_argument("--die-with-parent", type=int, metavar="PID", help="end when this parent process ends")
    return parser.parse_args()


def _fields() -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(EngineOptions)


def _bind_to_parent(pid: int) -> None:
    """Ask the kernel for SIGKILL when the parent thread ends; leave at once where it has ended already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != pid:
        sys.exit(0)


async def _serve(arguments: argparse.Namespace) -> None:
    options = EngineOptions(
        model_path=arguments.model_path,
        weight_version=arguments.weight_version,
        device=arguments.device,
        dtype=arguments.dtype,
        max_running_requests=arguments.max_running_requests,
        max_queued_requests=arguments.max_queued_requests,
        context_length=arguments.context_length,
        cache_tokens=arguments.max_total_tokens,
        block_tokens=arguments.block_tokens,
        prefill_tokens=arguments.chunked_prefill_size,
        max_pinned=arguments.max_pinned_versions,
    )
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    sock = None if arguments.fd is None else socket.socket(fileno=arguments.fd)
    guard = Guard(arguments.host)
    if TOKEN_ENV not in os.environ:
        logging.getLogger("engine").info("programs send the header Authorization: Bearer %s", guard.token)
    async with serving(options, guard, port=arguments.port, uds=arguments.uds, sock=sock) as failed:
        stopped = asyncio.ensure_future(stop.wait())
        either: set[asyncio.Future[Any]] = {stopped, failed}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await stopped
        if failed.done():
            failed.result()


def main() -> int:
    """Run until a signal stops it; exit status 2 when the model can't be served."""
    arguments = _arguments()
    if arguments.die_with_parent is not None:
        _bind_to_parent(arguments.die_with_parent)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    torch.set_num_threads(arguments.threads)
    try:
        uvloop.run(_serve(arguments))
    except (EngineError, ConfigError) as error:
        logging.getLogger("engine").error("%s", error)
        return _EXIT_UNUSABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
