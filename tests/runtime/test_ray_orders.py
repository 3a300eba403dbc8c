"""What Ray is told to keep a host off, without Ray: an order that excludes a machine ends with the doubt about it."""

from __future__ import annotations

import argparse
import asyncio
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.hosts import ray as engine
from runtime.hosts.frames import PlaceHost

ORDER = PlaceHost(
    life="next", run="run", names=[], families=[], root="/", arguments=[], env={}, ticket=b"", resources={}
)


class Method:
    def __init__(self, answer: Future[Any]) -> None:
        self.answer = answer

    def remote(self) -> Any:
        return SimpleNamespace(future=lambda: self.answer)


class Ray:
    """Keepers that come up once no machine is excluded."""

    def __init__(self) -> None:
        self.exceptions = SimpleNamespace(RayError=OSError, ActorUnavailableError=ConnectionError)
        self.orders, self.ended = list[dict[str, Any]](), list[Any]()

    def remote(self, _: Any) -> Any:
        return SimpleNamespace(options=lambda **options: SimpleNamespace(remote=lambda _: self.made(options)))

    def made(self, options: dict[str, Any]) -> Any:
        self.orders.append(options)
        where, watch = Future[Any](), Future[Any]()
        watch.set_result(([], 0))
        if "label_selector" not in options:
            where.set_result({"machine": "m", "node": "n", "pid": 7})
        return SimpleNamespace(where=Method(where), watch=Method(watch))

    def kill(self, made: Any, *, no_restart: bool) -> None:
        self.ended.append(made)


async def test_a_host_goes_to_a_machine_that_is_no_longer_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "AGAIN_S", 0.01)
    ray, there = engine.RayEngine(argparse.Namespace()), list[tuple[str, int]]()
    fake = ray._ray = Ray()
    ray._suspect, ray._nodes = {"lost"}, {"lost": "n"}
    placing = asyncio.create_task(ray.place(ORDER, lambda *where: there.append(where), lambda _: None))
    await asyncio.sleep(0.05)
    assert [order["label_selector"] for order in fake.orders] == [{engine.NODE_LABEL: "!in(n)"}]
    ray._suspect.clear()
    assert await asyncio.wait_for(placing, 5) == 0
    assert there == [("m", 7)]
    assert len(fake.orders) == len(fake.ended) == 2
    assert not ray._processes
