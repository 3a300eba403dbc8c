"""What a live run has to begin, end and configure to become what another deploy file says. Pure.

Invariant: carried out in the order `removed`, `added`, `configured`, a change makes the present layout the wanted one.
A seat is ended only where it, its process or what that process shares changes. A change that would cost an actor what
it knows is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from actors.cluster.config.schema import Deploy
from actors.desktop.actor import DesktopSeat
from actors.desktop.config import SandboxConfig
from actors.desktop.providers.sandbox.shares import Room, fitted
from actors.replay.config import LedgerSettings
from runtime.errors import ConfigError
from runtime.spec import MAIN, ActorSpec, HostSpec

# Keys that change while a run lives. All others are read by what would lose weights, batches or work to a new start.
LIVE = (
    "desktops", "samplers.count", "samplers.attach", "samplers.gpus", "evaluation", "run.limit_s", "run.require",
)  # fmt: skip
ONCE = ("evaluation.rollout_share",)  # of LIVE, but read by the ledger
# By kind of actor: the fields of its config that it takes while it lives (`Actor.on_config`).
TAKES = {
    "desktop": ("seat", "fit_seats"),
    "router": ("samplers", "generate_timeout_s"),
    "learner": ("samplers",),
    "entropulse": ("samplers", "evaluation"),
}
SEAT, SAMPLER = "desktop", "sampler"
Key = tuple[str, Any, Any]  # path, value before, value after


class Layout(msgspec.Struct, frozen=True):
    """The child processes and actors of a run by name, in the order of their start."""

    hosts: Mapping[str, HostSpec]
    actors: Mapping[str, ActorSpec]


class LiveChange(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done. An actor both in `removed` and `added` is begun again."""

    removed: tuple[str, ...] = ()
    added: tuple[ActorSpec, ...] = ()
    hosts: tuple[HostSpec, ...] = ()  # of processes that are begun, some of them again
    configured: tuple[ActorSpec, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.removed or self.added or self.configured)


def layout(hosts: Iterable[HostSpec], stages: Iterable[Sequence[ActorSpec]]) -> Layout:
    """Of what a plan names."""
    return Layout({one.name: one for one in hosts}, {spec.name: spec for stage in stages for spec in stage})


def keys(before: Deploy, after: Deploy) -> list[Key]:
    """The keys that differ, in the order of the schema."""
    old, new = (_flat("", msgspec.to_builtins(one)) for one in (before, after))
    return [
        (path, old.get(path), new.get(path)) for path in dict.fromkeys([*old, *new]) if old.get(path) != new.get(path)
    ]


def _flat(path: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {path: value}
    found: dict[str, Any] = {}
    for name, inner in value.items():
        found |= _flat(f"{path}.{name}" if path else name, inner)
    return found


def refused(found: Iterable[Key]) -> list[str]:
    """Those of the keys that do not change while a run lives."""
    return [path for path, *_ in found if not under(path, LIVE) or under(path, ONCE)]


def under(path: str, keys: Sequence[str]) -> bool:
    """Whether `path` is one of `keys`, or a key below one of them."""
    return any(path == key or path.startswith(f"{key}.") for key in keys)


def kept(now: Layout, then: Layout, there: Room) -> Layout:
    """`then` with the limits of the desktops that run, where `there` holds the memory and the processes of all so.

    It is for two plans that ask for the same limits: what of them each desktop gets depends on the count of desktops,
    and another count is to end no seat.
    """
    seats = [spec for spec in then.actors.values() if _kind(spec.name) == SEAT]
    running = next((spec.config.desktops.provider for spec in now.actors.values() if _kind(spec.name) == SEAT), None)
    if not seats or not isinstance(running, SandboxConfig):
        return then
    pool = seats[0].config.desktops.pool
    most = fitted(running, len(seats), pool.warm_pool * pool.processes, there)
    if (most.memory_mib, most.max_processes) != (running.memory_mib, running.max_processes):
        return then
    actors = dict(then.actors)
    for spec in seats:
        desktops = msgspec.structs.replace(spec.config.desktops, provider=running)
        config = msgspec.structs.replace(spec.config, desktops=desktops)
        actors[spec.name] = msgspec.structs.replace(spec, config=config)
    return Layout(then.hosts, actors)


def decide(now: Layout, then: Layout) -> LiveChange:
    """What makes `now` become `then`. Raises ConfigError, naming the actor, where that would cost what it knows."""
    again = set[str]()
    for name in now.hosts.keys() & then.hosts.keys():  # what the seats of a process share was made by the first of them
        old, new = (
            [_lasting(spec) for spec in one.actors.values() if spec.host == name and _kind(spec.name) == SEAT]
            for one in (now, then)
        )
        if now.hosts[name] != then.hosts[name] or (old[:1] != new[:1] and old and new):
            again.add(name)
    removed, added, configured = [], [], []
    for name, was in now.actors.items():
        wanted = then.actors.get(name)
        if wanted is None:
            if _kind(name) not in (SEAT, SAMPLER):
                raise ConfigError(f"{name} can't leave a run that lives")
            removed.append(name)
        elif _kind(name) != SEAT:
            if was.host != wanted.host or was.host in again or _lasting(was) != _lasting(wanted):
                raise ConfigError(f"{name} would have to begin again, and lose what it holds")
        elif was.host != wanted.host or was.host in again:
            removed.append(name)
    for name, spec in then.actors.items():
        before = now.actors.get(name)
        if before is None and _kind(name) not in (SEAT, SAMPLER):
            raise ConfigError(f"{name} can't join a run that lives")
        if before is None or name in removed:
            added.append(spec)
        elif _taken(before) != _taken(spec):
            configured.append(spec)
    begun = (host for name, host in then.hosts.items() if name in again or name not in now.hosts)
    return LiveChange(removed=tuple(removed), added=tuple(added), hosts=tuple(begun), configured=tuple(configured))


def _lasting(spec: ActorSpec) -> Any:
    """Of an actor's config what it has from its start to its end."""
    config = spec.config
    if isinstance(config, LedgerSettings):  # a recording is read once, and then named no more
        return msgspec.structs.replace(config, demos=msgspec.structs.replace(config.demos, source=""))
    taken = TAKES.get(_kind(spec.name), ())
    fields = () if config is None else config.__struct_fields__
    lasting = {name: getattr(config, name) for name in fields if name not in taken}
    return lasting | {"memo": config.remembers} if isinstance(config, DesktopSeat) else lasting


def _taken(spec: ActorSpec) -> Any:
    return [getattr(spec.config, name) for name in TAKES.get(_kind(spec.name), ())]


def _kind(name: str) -> str:
    return name.partition("/")[0]


def done(now: Layout, change: LiveChange) -> Layout:
    """The layout after `change`."""
    actors = {name: spec for name, spec in now.actors.items() if name not in change.removed}
    actors |= {spec.name: spec for spec in (*change.added, *change.configured)}
    hosts = dict(now.hosts) | {host.name: host for host in change.hosts}
    held = {spec.host for spec in actors.values()} - {MAIN}
    return Layout({name: host for name, host in hosts.items() if name in held}, actors)
