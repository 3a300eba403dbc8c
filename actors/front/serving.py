"""`computerrl serve-env`: serves desktops by the OpenEnv protocol to programs that show the token."""

from __future__ import annotations

import argparse
import asyncio
import functools
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from typing import Any

from actors.cluster import output
from actors.cluster.config import deploy_files
from actors.front.library import ANSWER_S, DesktopSettings, TaskHandle, opened
from runtime.errors import ConfigError
from runtime.http import LOOPBACK, Guard
from runtime.system import run as run_loop

MOST_HEAD = 16 << 10  # bytes of a request's headers
END_S = 2  # for sessions that still play
MISSING = f"serve-env needs the package {{}}: {sys.executable} -m pip install 'computerrl[openenv]'"


def main(args: argparse.Namespace) -> int:
    """Serve what the arguments ask for until SIGINT or SIGTERM; 0. Raises ConfigError."""
    tasks = [task.id for task in TaskHandle.listed(args.suite, args.split, first=args.first, count=args.count)]
    if missing := [name for name in ("openenv", "uvicorn") if find_spec(name) is None]:
        raise ConfigError(MISSING.format(missing[0]))
    with _listening(args.port) as listener:
        run_loop(_serve(args, tasks, listener))
    return 0


@contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
            listener.listen()  # a client that is quick waits
        except OSError as error:
            raise ConfigError(f"--port {port}: can't be served: {error.strerror}; 0 takes a free one") from None
        yield listener


async def _serve(args: argparse.Namespace, tasks: list[str], listener: socket.socket) -> None:
    try:
        import uvicorn
        from openenv.core.env_server.http_server import create_fastapi_app
        from openenv.core.env_server.types import ConcurrencyConfig
    except ImportError as error:  # a package that it needs has another version
        raise ConfigError(f"serve-env: the package openenv can't be imported: {error}") from error
    from uvicorn.protocols.http.h11_impl import H11Protocol

    from actors.front.environment import DesktopAction, DesktopEnvironment, DesktopObservation, SessionState, TaskServer

    guard = Guard()
    settings: dict[str, Any] = {"screen": args.screen} if args.screen else {}
    provider = deploy_files.provider_set(args.overrides)
    async with opened(DesktopSettings(count=args.desktops, provider=provider, **settings), tasks) as pool:
        shared = TaskServer(
            pool, tasks, max_turns=args.max_turns, form=args.format, actions=args.actions, pictures=args.screenshots
        )
        app = create_fastapi_app(
            functools.partial(DesktopEnvironment, shared), DesktopAction, DesktopObservation,
            concurrency_config=ConcurrencyConfig(max_concurrent_envs=args.desktops, session_timeout=ANSWER_S),
            state_cls=SessionState,
        )  # fmt: skip
        # A trainer's loop may stand still while it learns: no ping ends its session.
        settled = uvicorn.Config(
            guard.asgi(app),
            # That of `httptools` takes headers without an end.
            http=lambda **given: guard.counted(functools.partial(H11Protocol, **given))(),
            h11_max_incomplete_event_size=MOST_HEAD,
            proxy_headers=False,  # a connection is known by its own address
            log_level="error",
            ws_ping_interval=None,
            timeout_graceful_shutdown=END_S,
        )
        server = uvicorn.Server(settled)
        server.capture_signals = nullcontext  # its own handlers raise the signal again before the desktops are gone
        address = guard.address(listener.getsockname()[1])
        output.line(f"serving {len(tasks)} tasks at {address}   (Ctrl-C ends it)")
        loop = asyncio.get_running_loop()
        for one in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(one, setattr, server, "should_exit", True)
        await server.serve(sockets=[listener])
