"""What a change ends and begins is what differs, and no seat that may stay is ended."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cluster.config import deploy_files
from actors.cluster.config.schema import Deploy
from actors.cluster.runs import apply, compose, loop
from actors.cluster.runs.apply import Layout, LiveChange
from actors.desktop.actor import DesktopSeat, Drain
from actors.desktop.config import DesktopsConfig, MemoUse, PoolConfig, SandboxConfig, SeatConfig
from actors.desktop.providers.sandbox import shares
from actors.sampler.router import DispatchSettings
from runtime.actor import Actor, handles
from runtime.control import command
from runtime.errors import ConfigError
from runtime.messaging.message import Done, encode
from runtime.spec import MAIN, ActorSpec, HostSpec
from runtime.system import ActorSystem

FACTORY = "actors.desktop.actor:DesktopController"


class Shape(msgspec.Struct, frozen=True):
    """What a layout is made of."""

    seats: int
    processes: int
    samplers: int
    memory_mib: int = 500
    settle_ms: int = 100
    silent_s: float = 60.0
    memo: MemoUse = "off"


def laid(shape: Shape) -> Layout:
    hosts = [HostSpec(name=f"desktops/{i}", silent_limit_s=shape.silent_s) for i in range(shape.processes)]
    desktops = DesktopsConfig(
        provider=SandboxConfig(memory_mib=shape.memory_mib), pool=PoolConfig(processes=shape.processes)
    )
    seats = SeatConfig(settle_ms=shape.settle_ms, memo=shape.memo)
    seat = DesktopSeat(seat=seats, desktops=desktops, model="m", samplers=["router"])
    samplers = [f"sampler/{i}" for i in range(shape.samplers)]
    made = [
        *(ActorSpec(name=name, factory="s:S", config=SeatConfig()) for name in samplers),
        ActorSpec(name="router", factory="r:R", config=DispatchSettings(samplers=samplers)),
        *(
            ActorSpec(name=f"desktop/{k}", factory=FACTORY, config=seat, host=f"desktops/{k % shape.processes}")
            for k in range(shape.seats)
        ),
    ]
    return apply.layout(hosts, [made])


shapes = st.integers(1, 12).flatmap(
    lambda seats: st.builds(
        Shape,
        seats=st.just(seats),
        processes=st.integers(1, seats),
        samplers=st.integers(1, 4),
        memory_mib=st.sampled_from([500, 900]),
        settle_ms=st.sampled_from([100, 200]),
        silent_s=st.sampled_from([60.0, 300.0]),
        memo=st.sampled_from(["off", "on"]),
    )
)


@given(shapes, shapes)
def test_a_change_carried_out_is_what_was_wanted(before: Shape, after: Shape) -> None:
    now, then = laid(before), laid(after)
    change = apply.decide(now, then)
    reached = apply.done(now, change)
    assert (dict(reached.actors), dict(reached.hosts)) == (dict(then.actors), dict(then.hosts))
    assert not apply.decide(reached, then)
    # A process that is begun has lost all its seats first, and a seat that is begun is not there.
    left = apply.done(now, LiveChange(removed=change.removed))
    assert not {host.name for host in change.hosts} & {spec.host for spec in left.actors.values()}
    assert not {spec.name for spec in change.added} & left.actors.keys()
    # A seat ends only where its process or what it shares changes.
    same, was = (
        msgspec.structs.replace(shape, seats=0, samplers=0, settle_ms=shape.settle_ms if shape.memo == "on" else 0)
        for shape in (after, before)
    )
    ended = {name for name in change.removed if name.startswith("desktop/")}
    if same == was:  # only how many there are, and what a seat takes while it lives
        assert ended == {f"desktop/{k}" for k in range(after.seats, before.seats)}
    if before == after:
        assert change == LiveChange()


def planned(**changed: Any) -> tuple[Deploy, compose.Plan]:
    deploy, _ = deploy_files.load("smoke", [f"{name}={value}" for name, value in changed.items()])
    return deploy, loop.training().planned(deploy, run_dir=Path("run"), incarnation="i")


def test_a_plan_becomes_another_by_what_its_file_says() -> None:
    begun, before = planned()
    wanted, after = planned(**{
        "desktops.count": 6, "desktops.processes": 2, "samplers.count": 2, "evaluation.interval": 3, "run.limit_s": 99,
    })  # fmt: skip
    now = apply.layout(before.hosts, before.stages)
    change = apply.decide(now, apply.layout(after.hosts, after.stages))
    found = apply.keys(begun, wanted)
    apply.refuse(found, "r")
    assert {spec.name for spec in change.configured} >= {"router", "learner", "entropulse"}
    lines = apply.change_lines(found, change, now)
    assert "+ sampler/1" in lines
    assert "+ desktop/4..5" in lines
    assert "+ process desktops/1" in lines
    assert "~ run.limit_s: 1800.0 -> 99.0" in lines


def test_functions_of_applications_are_read_at_the_start_alone() -> None:
    begun, _ = planned()
    wanted = msgspec.structs.replace(begun, desktops=msgspec.structs.replace(begun.desktops, apis=["built@0123"]))
    with pytest.raises(ConfigError, match=r"^desktops\.apis: run r reads it at its start alone"):
        apply.refuse(apply.keys(begun, wanted), "r")


def test_a_router_elsewhere_takes_other_samplers_and_stays_where_it_is() -> None:
    elsewhere = {"cluster.engine": "ray", "samplers.router_place": "{CPU: 1}", "learner.actor_place": "{CPU: 1}"}
    begun, before = planned(**elsewhere)
    wanted, after = planned(**elsewhere, **{"samplers.count": 2})
    now = apply.layout(before.hosts, before.stages)
    change = apply.decide(now, apply.wanted(now, begun, after))
    assert (change.removed, change.hosts, [spec.name for spec in change.added]) == ((), (), ["sampler/1"])
    assert {spec.name: spec.host for spec in change.configured} == {
        "router": "router", "learner": "learner", "entropulse": "main"
    }  # fmt: skip
    apply.refuse(apply.keys(begun, wanted), "r")
    home = deploy_files.load("smoke", ["cluster.engine=ray"])[0]
    more = r"samplers\.router_place\.CPU and 1 more \(learner\.actor_place\.CPU\): run r .*--resume --set"
    with pytest.raises(ConfigError, match=more):
        apply.refuse(apply.keys(begun, home), "r")


@pytest.mark.parametrize(
    ("changed", "memory_mib", "moved"),
    [
        ({"desktops.count": 5}, 10_500, []),
        ({"desktops.count": 3}, 10_500, ["desktop/3"]),
        ({"desktops.count": 5}, 9_000, [f"desktop/{k}" for k in range(4)]),  # 1500 MiB for 6 desktops, not for 7
        ({"desktops.count": 5, "desktops.provider.disk_mib": 300}, 10_500, [f"desktop/{k}" for k in range(4)]),
    ],
)
def test_another_count_ends_no_other_seat_while_their_limits_fit(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], memory_mib: int, moved: list[str]
) -> None:
    room = shares.Room(memory_mib=memory_mib, processes=6_000, open_files=6 * 600 * 512, terminals=300)
    monkeypatch.setattr(shares, "room", lambda: room)
    begun, before = planned()
    _, after = planned(**changed)
    now = apply.layout(before.hosts, before.stages)
    then = apply.wanted(now, begun, after)
    assert list(apply.decide(now, then).removed) == moved
    limits = {spec.config.desktops.provider for spec in then.actors.values() if spec.name.startswith("desktop/")}
    assert len(limits) == 1  # all that may share a process have the same


@pytest.mark.parametrize(("count", "moved"), [(7, []), (3, ["desktop/3"])])
def test_another_count_of_placed_desktops_ends_no_other_seat(count: int, moved: list[str]) -> None:
    elsewhere = {"cluster.engine": "ray", "desktops.place": "{CPU: 1}", "desktops.processes": 2}
    begun, before = planned(**elsewhere)
    _, after = planned(**elsewhere, **{"desktops.count": count})
    now = apply.layout(before.hosts, before.stages)
    change = apply.decide(now, apply.wanted(now, begun, after))
    assert list(change.removed) == moved
    assert [spec.name for spec in change.added] == [f"desktop/{k}" for k in range(4, count)]
    taken = {spec.name: spec.config.fit_seats for spec in change.configured if spec.name.startswith("desktop/")}
    kept = [k for k in range(min(4, count)) if (count + 1 - k % 2) // 2 != 2]  # whose process has another count
    assert taken == {f"desktop/{k}": (count + 1 - k % 2) // 2 for k in kept}


class ShortSeat(Actor):
    """Takes no long `state_dir`, and has no desktop."""

    config: DesktopSeat

    async def on_start(self) -> None:
        if len(self.config.desktops.provider.folder) > 100:
            raise ConfigError("desktops.provider.state_dir is too long")

    @handles(Drain)
    async def drain(self, msg: Drain) -> Done:
        return Done()


async def test_seats_fit_again_where_others_came_and_did_not_stay(tmp_path: Path) -> None:
    now, then = laid(Shape(4, 2, 1)), laid(Shape(5, 2, 1))
    configured = list[str]()

    class System:
        async def join(self, *specs: ActorSpec, hosts: object) -> None:
            raise ConfigError("no room")

        async def remove(self, names: object) -> None:
            return None

        async def configure(self, *specs: ActorSpec) -> None:
            configured.extend(spec.name for spec in specs)

    standing = object.__new__(apply.LivePlan)
    standing._there = now
    with pytest.raises(ConfigError, match=r"no room; the run goes on as before"):
        await standing._carry_out(System(), apply.decide(now, then), 1.0)
    assert configured == ["desktop/0", "desktop/2"], "those beside desktop/4, and as they were"
    assert standing._there == now


async def test_a_run_goes_on_as_before_where_a_change_can_not_start(tmp_path: Path) -> None:
    def of_seats(deploy: Deploy, *, run_dir: Path, incarnation: str) -> compose.Plan:
        made = loop.training().planned(deploy, run_dir=run_dir, incarnation=incarnation)
        seats = [
            msgspec.structs.replace(spec, factory=ShortSeat, host=MAIN)
            for spec in made.stages[1]
            if spec.name.startswith("desktop/")
        ]
        ledger = msgspec.structs.replace(made.stages[0][0], host="ledger")
        # In this very process, as if it were one of the seats': it is begun anew with them.
        return msgspec.structs.replace(made, hosts=(HostSpec(name=MAIN),), stages=((ledger,), tuple(seats)))

    async def applied(*overrides: str) -> list[str]:
        deploy, lines = deploy_files.load("smoke", list(overrides))[0], list[str]()
        body = encode(apply.WantedSettings(deploy=deploy))
        await asyncio.to_thread(command, tmp_path, apply.COMMAND, body, lines.append)
        return lines

    begun = of_seats(deploy_files.load("smoke", [])[0], run_dir=tmp_path, incarnation="i")
    async with ActorSystem(tmp_path) as system, asyncio.timeout(None) as limit:
        standing = apply.LivePlan(system, begun, of_seats)
        await system.spawn(*begun.stages[1])
        standing.begin(limit)
        failed = asyncio.ensure_future(system.failed())
        refused = "desktop/0..4 did not start: .*state_dir is too long; the run goes on as before"
        with pytest.raises(ConfigError, match=refused):
            await applied("desktops.count=5", f"desktops.provider.state_dir=/{'d' * 125}")
        assert [one.state for one in await system.statuses()] == ["running"] * 4
        assert not (tmp_path / deploy_files.STORED).exists()
        with pytest.raises(ConfigError, match=r"of another version than the run: .* unknown field `hue`"):
            await asyncio.to_thread(command, tmp_path, apply.COMMAND, encode({"deploy": {"hue": 1}}), print)
        assert "+ desktop/4" in await applied("desktops.count=5")
        (tmp_path / deploy_files.STORED).unlink()
        (tmp_path / deploy_files.STORED).mkdir()  # no file takes its place
        with pytest.raises(ConfigError, match=r"the run has changed, but .*deploy.yaml.* can't be written: Is a dir"):
            await applied("desktops.count=5", "run.limit_s=99")
        assert system.names() == [f"desktop/{k}" for k in range(5)]
        assert not failed.done()
        await standing.close()
        failed.cancel()
