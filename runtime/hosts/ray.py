"""The placer process: `python -P -m runtime.hosts.ray`, a Ray driver of its own.

Invariant: a life that was ordered is answered by exactly one `Ended`, after at most one `HostPlaced`. No message goes
through Ray, and no Ray worker imports a module of this program. The machine of a life that can't be reached takes no
other life until Ray has given the machine up, too.

Ray ends a driver whose cluster has lost its head, without an exception. Therefore no run is a driver.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import json
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from runtime.errors import ComputerRLError, ConfigError, HostLost
from runtime.hosts import far_process, frames
from runtime.program import die_with
from runtime.waits import TaskScope

SHOW_EVERY_S = 3.0


class HostUnreachedError(HostLost):
    """The life was given up, and its host may still run on a machine that can't be reached."""


class _Serving:
    """The placer's side of the link."""

    def __init__(self, engine: RayEngine, link: frames.Link[frames.FromPlacer | frames.ToPlacer]) -> None:
        self._engine, self._link = engine, link
        self._failed: BaseException | None = None
        self._unplaced: dict[str, asyncio.Task[None]] = {}
        self._scope = TaskScope(self._job_failed)

    async def run(self) -> None:
        try:
            address = await self._engine.connect()
        except ConfigError as error:
            await self._link.send(frames.Unusable(cause=str(error)), 10.0)
            await self._link.receive()  # main ends this process
            return
        self._link.write(frames.Ready(address=address))
        self._scope.spawn(self._show(), "machines")
        while (frame := await self._link.receive()) is not None:
            match frame:
                case frames.PlaceHost():
                    self._unplaced[frame.life] = self._scope.spawn(self._place(frame), f"place {frame.life}")
                case frames.Kill() if (placing := self._unplaced.pop(frame.life, None)) is not None:
                    placing.cancel()
                case frames.Kill():
                    self._scope.spawn(self._engine.kill(frame.life), f"kill {frame.life}")
        await self._scope.close(5.0)
        if self._failed is not None:
            raise self._failed

    async def _place(self, order: frames.PlaceHost) -> None:
        def placed(machine: str, pid: int) -> None:
            self._unplaced.pop(order.life, None)
            self._link.write(frames.HostPlaced(life=order.life, machine=machine, pid=pid))

        def said(line: str) -> None:
            self._link.write(frames.HostSaid(life=order.life, line=line))

        code, cause, sure = None, "", True
        try:
            code = await self._engine.place(order, placed, said)
        except ComputerRLError as error:
            cause, sure = str(error), not isinstance(error, HostUnreachedError)
        except asyncio.CancelledError:
            cause = "it was not wanted any more"
        self._unplaced.pop(order.life, None)
        self._link.write(frames.Ended(life=order.life, code=code, cause=cause, sure=sure))

    async def _show(self) -> None:
        shown: list[frames.Machine] | None = None
        while True:
            machines = await self._engine.machines()
            if machines != shown:
                self._link.write(frames.There(machines=machines))
            shown = machines
            await asyncio.sleep(SHOW_EVERY_S)

    def _job_failed(self, _name: str, error: BaseException) -> None:
        self._failed = error
        self._link.abort()


def serve(parser: argparse.ArgumentParser, engine: Callable[[argparse.Namespace], RayEngine]) -> None:
    """A placer process's main: reads its arguments, then serves the link until main's end of it closes.

    `engine` makes a `RayEngine`, or what has its four methods that are not private.
    """
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    args = parser.parse_args()
    die_with(args.parent)

    async def run() -> None:
        sock = socket.socket(fileno=args.fd)
        sock.set_inheritable(False)
        link: frames.Link[frames.FromPlacer | frames.ToPlacer] = await frames.Link.of_socket(sock, frames.ToPlacer)
        try:
            await _Serving(engine(args), link).run()
        finally:
            await link.close()

    asyncio.run(run())


LOCAL = "local"
NAMESPACE = "computerrl"
STORE_BYTES = 80_000_000  # of the object store that a started Ray has: nothing is put there
AGAIN_S = 1.0  # between two tries to reach a process whose machine Ray has not given up
ANSWER_S = 2.0  # for a far process to have ended its host
UNSURE_S = 180.0  # then a machine that Ray has not given up meanwhile is taken to be well
OURS = ("CPU", "GPU")  # which Ray has options of its own for
NOT_LET_IN = (
    "cluster.address: Ray at {} does not take this machine's token: every machine needs RAY_AUTH_MODE=token and the"
    " head's ~/.ray/auth_token before its ray start"
)
NO_RAY = (
    "no Ray runs on this machine: begin one as actors/cluster/README.md says, or name it by cluster.address=HOST:PORT;"
    " cluster.address=local starts one for the run"
)
NODE_LABEL = "ray.io/node-id"


def load() -> Any:
    """Ray's package. Raises ConfigError where it is not installed."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ConfigError(f"cluster.engine is ray, which is not installed ({error}): make ray") from error


class RayEngine:
    """One driver. `_suspect` holds the nodes of lives that were given up and have not been confirmed to be over."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._ray: Any = None
        self._processes: dict[str, Any] = {}  # by life
        self._nodes: dict[str, str] = {}  # by life
        self._suspect: set[str] = set()  # lives
        self._unreached: set[str] = set()  # lives whose actor Ray was asked to end, without having seen it end

    async def connect(self) -> str:
        """The address by which the cluster knows this machine. Raises ConfigError where no restart will help."""
        ray = self._ray = load()
        os.chdir("/")  # Ray puts the driver's folder first on the import path of every worker
        ray.cloudpickle.register_pickle_by_value(far_process)
        options: dict[str, Any] = {
            "namespace": NAMESPACE, "log_to_driver": False, "configure_logging": False, "logging_level": "ERROR",
        }  # fmt: skip
        if self._args.address == LOCAL:
            has = json.loads(self._args.resources)
            options |= {
                "num_cpus": int(max(has.pop("CPU", 1), os.cpu_count() or 1)), "num_gpus": has.pop("GPU", None),
                "resources": has, "include_dashboard": False, "object_store_memory": STORE_BYTES,
            }  # fmt: skip
        else:
            # A Ray head asks for the token that its machine has, and a driver with an explicit address sends none.
            setup = importlib.import_module("ray._private.authentication.authentication_token_setup")
            setup.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
            options["address"] = self._args.address or os.environ.get("RAY_ADDRESS", "auto")
        try:
            await asyncio.to_thread(ray.init, **options)
        except ray.exceptions.AuthenticationError as error:
            raise ConfigError(NOT_LET_IN.format(options.get("address", LOCAL))) from error
        except ConnectionError as error:  # another try may help: Ray may be started meanwhile
            raise SystemExit(NO_RAY if options.get("address") == "auto" else _first_line(error)) from error
        return str(ray.util.get_node_ip_address())

    async def machines(self) -> list[frames.Machine]:
        return await asyncio.to_thread(self._machines)

    def _machines(self) -> list[frames.Machine]:
        state = importlib.import_module("ray._private.state")
        free = state.available_resources_per_node()
        return [
            frames.Machine(
                name=node["NodeManagerAddress"],
                total=_shown(node["Resources"]),
                free=_shown(free.get(node["NodeID"], {})),
            )
            for node in sorted(self._ray.nodes(), key=lambda node: str(node["NodeManagerAddress"]))
            if node["Alive"]
        ]

    async def place(
        self, order: frames.PlaceHost, placed: Callable[[str, int], None], say: Callable[[str], None]
    ) -> int:
        """Start the life where there is room and see it to its end; returns its exit status.

        Raises HostUnreachedError for a host that may still run, HostLost for one that is over. Cancelled before it has
        called `placed`, it leaves nothing.
        """
        made = None
        try:
            made, there = await self._begun(order)
            self._nodes[order.life] = there["node"]
            placed(there["machine"], there["pid"])
            while True:
                try:
                    lines, code = await self._ask(made.watch)
                except self._ray.exceptions.ActorUnavailableError:
                    await asyncio.sleep(AGAIN_S)  # Ray does not know yet whether it is over
                    continue
                for line in lines:
                    say(line)
                if code is not None:
                    return int(code)
        except self._ray.exceptions.RayError as error:
            if order.life in self._unreached:
                await self._given_up(self._nodes.get(order.life, ""))
                raise HostUnreachedError(f"Ray can't reach its machine: {_first_line(error)}") from error
            raise HostLost(f"Ray: {_first_line(error)}") from error
        finally:
            self._unreached.discard(order.life)
            self._suspect.discard(order.life)
            self._nodes.pop(order.life, None)
            made = self._processes.pop(order.life, made)
            if made is not None:
                self._end(made)

    async def _begun(self, order: frames.PlaceHost) -> tuple[Any, dict[str, Any]]:
        """The far process and where it is. Ray never looks again at what an order excludes: it is made again."""
        while True:
            away = self._away()
            made = self._processes[order.life] = self._start(order, away)
            where = asyncio.ensure_future(self._ask(made.where))
            try:
                while not where.done() and away <= self._away():
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(AGAIN_S):
                            await asyncio.shield(where)
                if where.done():
                    return made, where.result()
            finally:
                where.cancel()
            self._end(made)

    def _away(self) -> set[str]:
        """Nodes that may have what a life left."""
        return {self._nodes[life] for life in self._suspect if life in self._nodes}

    async def kill(self, life: str) -> None:
        """Have the far process end its host; one that can't be reached is ended by Ray."""
        made = self._processes.get(life)
        if made is None:
            return
        self._suspect.add(life)
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._ask(made.kill)
        except (TimeoutError, self._ray.exceptions.ActorUnavailableError):
            self._unreached.add(life)
            self._end(made)
        except self._ray.exceptions.RayError:  # `place` sees it, too
            self._end(made)

    async def _given_up(self, node: str) -> None:
        """Return once Ray has given the node up, or after `UNSURE_S`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(UNSURE_S):
                while await asyncio.to_thread(self._lives, node):  # noqa: ASYNC110 - Ray tells of no changes
                    await asyncio.sleep(AGAIN_S)

    def _lives(self, node: str) -> bool:
        return any(each["NodeID"] == node and each["Alive"] for each in self._ray.nodes())

    def _start(self, order: frames.PlaceHost, away: set[str]) -> Any:
        need = order.resources
        options: dict[str, Any] = {
            "num_cpus": need.get("CPU", 1), "num_gpus": need.get("GPU", 0),
            "resources": {name: amount for name, amount in need.items() if name not in OURS},
            "max_restarts": 0, "max_task_retries": 0, "max_concurrency": 4, "scheduling_strategy": "SPREAD",
        }  # fmt: skip
        if away:
            options["label_selector"] = {NODE_LABEL: f"!in({','.join(sorted(away))})"}
        order_told = msgspec.to_builtins(order, builtin_types=(bytes,))
        return self._ray.remote(far_process.FarProcess).options(**options).remote(order_told)

    async def _ask(self, method: Any) -> Any:
        return await asyncio.wrap_future(method.remote().future())

    def _end(self, made: Any) -> None:
        with contextlib.suppress(self._ray.exceptions.RayError):  # it has ended
            self._ray.kill(made, no_restart=True)


def _shown(resources: dict[str, float]) -> dict[str, float]:
    """What a deploy file may ask for: not what Ray adds for itself."""

    def own() -> Iterator[tuple[str, float]]:
        for name, amount in resources.items():
            if ":" not in name and name not in ("memory", "object_store_memory"):
                yield name, float(amount)

    return dict(own())


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300] if lines else ''}"


def main() -> None:
    """The placer process."""
    parser = argparse.ArgumentParser(prog="runtime.hosts.ray")
    parser.add_argument("--address", default="")
    parser.add_argument("--resources", default="{}")  # of the machine, where a cluster is started here
    serve(parser, RayEngine)


if __name__ == "__main__":
    main()
