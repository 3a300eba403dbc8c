"""Places hosts by Ray: `python -P -m runtime.hosts.ray`, a driver in a process of its own.

Invariant: no message of this program goes through Ray, and no module of it is imported by a Ray worker. The machine of
a life that can't be reached takes no other life until Ray has given the machine up, too.

Ray ends a driver whose cluster has lost its head, without an exception. Therefore no run is a driver.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from runtime.errors import ConfigError, HostLost
from runtime.hosts import keeper
from runtime.hosts.placing import HostUnreachedError, Machine, PlaceHost, serve

LOCAL = "local"
NAMESPACE = "computerrl"
STORE_BYTES = 80_000_000  # of the object store that a started Ray has: nothing is put there
AGAIN_S = 1.0  # between two tries to reach a keeper whose machine Ray has not given up
ANSWER_S = 2.0  # for a keeper to have ended its host
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
        self._keepers: dict[str, Any] = {}  # by life
        self._nodes: dict[str, str] = {}  # by life
        self._suspect: set[str] = set()  # lives
        self._unreached: set[str] = set()  # lives whose keeper Ray has been told to end, without having seen it end

    async def connect(self) -> str:
        """Attach to the cluster, or start one here."""
        ray = self._ray = load()
        os.chdir("/")  # Ray puts the driver's folder first on the import path of every worker
        ray.cloudpickle.register_pickle_by_value(keeper)
        options: dict[str, Any] = {
            "namespace": NAMESPACE, "log_to_driver": False, "configure_logging": False, "logging_level": "ERROR",
        }  # fmt: skip
        if self._args.bind:
            options["_node_ip_address"] = self._args.bind
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

    async def machines(self) -> list[Machine]:
        """The living machines, and what each has free."""
        return await asyncio.to_thread(self._machines)

    def _machines(self) -> list[Machine]:
        state = importlib.import_module("ray._private.state")
        free = state.available_resources_per_node()
        return [
            Machine(
                name=node["NodeManagerAddress"],
                total=_shown(node["Resources"]),
                free=_shown(free.get(node["NodeID"], {})),
            )
            for node in sorted(self._ray.nodes(), key=lambda node: str(node["NodeManagerAddress"]))
            if node["Alive"]
        ]

    async def place(self, order: PlaceHost, placed: Callable[[str, int], None], said: Callable[[str], None]) -> int:
        """Start a keeper where there is room and watch it to its end."""
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
                    said(line)
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
            made = self._keepers.pop(order.life, made)
            if made is not None:
                self._end(made)

    async def _begun(self, order: PlaceHost) -> tuple[Any, dict[str, Any]]:
        """The keeper and where it is. Ray never looks again at what an order excludes: it is made again."""
        while True:
            away = self._away()
            made = self._keepers[order.life] = self._start(order, away)
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
        """Have the keeper end its host; a keeper that can't be reached is ended by Ray."""
        made = self._keepers.get(life)
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
        return any(one["NodeID"] == node and one["Alive"] for one in self._ray.nodes())

    def _start(self, order: PlaceHost, away: set[str]) -> Any:
        need = order.resources
        options: dict[str, Any] = {
            "num_cpus": need.get("CPU", 1), "num_gpus": need.get("GPU", 0),
            "resources": {name: amount for name, amount in need.items() if name not in OURS},
            "max_restarts": 0, "max_task_retries": 0, "max_concurrency": 4, "scheduling_strategy": "SPREAD",
        }  # fmt: skip
        if away:
            options["label_selector"] = {NODE_LABEL: f"!in({','.join(sorted(away))})"}
        order_told = msgspec.to_builtins(order, builtin_types=(bytes,))
        return self._ray.remote(keeper.Keeper).options(**options).remote(order_told)

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
    parser.add_argument("--bind", default="")
    parser.add_argument("--resources", default="{}")  # of the machine, where a cluster is started here
    serve(parser, RayEngine)


if __name__ == "__main__":
    main()
