"""A live run becomes what another deploy file says: what has to begin, end and be configured, and how that is done.

Invariant: carried out in the order `removed`, `added`, `configured`, a change makes the present layout the wanted one.
A seat is ended only where it, its process or what that process shares changes, and has reported its episode; a sampler
that leaves has answered. A change that would cost an actor what it knows is refused. What is there is known after every
part of a change, also where a later part fails. `deploy.yaml` in the run's folder names the new settings once all hold.
"""

from __future__ import annotations

import argparse
import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster import output
from actors.cluster.config import deploy_files
from actors.cluster.config.schema import Deploy
from actors.cluster.runs import run_folder
from actors.cluster.runs.compose import Plan, ranges
from actors.desktop.actor import REPORT_GIVE_UP_S, RESERVE_WAIT_S, DesktopSeat, Drain
from actors.desktop.config import SandboxConfig
from actors.desktop.providers.sandbox import shares
from actors.desktop.providers.sandbox.shares import Room, fitted
from actors.replay.config import LedgerSettings
from actors.replay.messages import Serving
from runtime import control
from runtime.control import Say
from runtime.errors import ActorFailed, ActorGone, ComputerRLError, ConfigError, DeadlineExceeded, ProtocolError
from runtime.logs.events import declare
from runtime.messaging.message import decode, encode
from runtime.spec import MAIN, ActorSpec, HostSpec
from runtime.system import ActorSystem

# A live run has become what another deploy file says; `lines` as `computerrl apply` prints them.
CHANGED = declare("changed", "info", lines=list[str])
# A seat that is to leave did not end its episode; the ledger takes the work back.
DRAIN_FAILED = declare("drain_failed", "warning", seat=str, cause=str)
COMMAND = "apply"
SAY_EVERY_S = 15.0
ASK_S = 30.0
# Keys that change while a run lives. All others are read by what would lose weights, batches or work to a new start.
LIVE = (
    "desktops", "samplers.count", "samplers.attach", "samplers.gpus", "evaluation", "run.limit_s", "run.require",
)  # fmt: skip
ONCE = ("evaluation.rollout_share", "desktops.apis")  # of LIVE, but read at the start by the ledger and by processes
# By kind of actor: the fields of its config that it takes while it lives (`Actor.on_config`).
TAKES = {
    "desktop": ("seat", "fit_seats"),
    "router": ("samplers", "generate_timeout_s"),
    "learner": ("samplers",),
    "entropulse": ("samplers", "evaluation"),
}
SEAT, SAMPLER = "desktop", "sampler"
Key = tuple[str, Any, Any]  # path, value before, value after


class WantedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What `computerrl apply` asks of a run."""

    deploy: Deploy
    dry_run: bool = False


def command(args: argparse.Namespace) -> int:
    """`apply`: ask a live run; 1 where it ends meanwhile. Raises ConfigError with what it refuses."""
    folder = run_folder.find(Path(args.runs), args.run)
    if args.file is None and not args.overrides:
        raise ConfigError("name a FILE, or a change with --set PATH=VALUE")
    if args.file is None:
        deploy = deploy_files.stored(folder, args.overrides)
    else:
        deploy, _ = deploy_files.load(args.file, args.overrides)
    if run_folder.owner(folder) is None:
        line = run_folder.to_continue(run_folder.read_record(folder), folder)
        raise ConfigError(f"run {folder.name} is not live: go on with  {line}  and --set PATH=VALUE")
    try:
        control.command(folder, COMMAND, encode(WantedSettings(deploy=deploy, dry_run=args.dry_run)), output.line)
    except ActorGone as error:
        output.news(f"run {folder.name}: {error}")
        return 1
    return 0


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
    flat: dict[str, Any] = {}
    for name, inner in value.items():
        flat |= _flat(f"{path}.{name}" if path else name, inner)
    return flat


def under(path: str, keys: Sequence[str]) -> bool:
    """Whether `path` is one of `keys`, or a key below one of them."""
    return any(path == key or path.startswith(f"{key}.") for key in keys)


def refuse(changed: Iterable[Key], run: str) -> None:
    """Raise ConfigError where one of the changed keys is read once, at a run's start."""
    if dead := [path for path, *_ in changed if not under(path, LIVE) or under(path, ONCE)]:
        more = f" and {len(dead) - 1} more ({', '.join(dead[1:4])})" if len(dead) > 1 else ""
        raise ConfigError(
            f"{dead[0]}{more}: run {run} reads it at its start alone; stop it with Ctrl-C, then go on with"
            f"  --resume --set {dead[0]}=VALUE"
        )


def wanted(there: Layout, deploy: Deploy, plan: Plan) -> Layout:
    """What a run of `deploy`, whose layout is `there`, is to be by `plan`."""
    then, desktops = layout(plan.hosts, plan.stages), plan.deploy.desktops
    if desktops.place or desktops.provider != deploy.desktops.provider:
        return then
    return kept(there, then, shares.room())


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
        wanted, moves = then.actors.get(name), _kind(name) in (SEAT, SAMPLER)
        if wanted is None:
            if not moves:
                raise ConfigError(f"{name} can't leave a run that lives")
            removed.append(name)
        elif _kind(name) == SEAT:
            if was.host != wanted.host or was.host in again:
                removed.append(name)
        elif was.host != wanted.host or was.host in again or _lasting(was) != _lasting(wanted):
            raise ConfigError(f"{name} would have to begin again, and lose what it holds")
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
    used = {spec.host for spec in actors.values()} - {MAIN}
    return Layout({name: host for name, host in hosts.items() if name in used}, actors)


def change_lines(changed: Sequence[Key], change: LiveChange, there: Layout) -> list[str]:
    """A line for each thing that changes: `+` begins, `-` ends, `~` goes on otherwise or begins again."""
    lines = [f"~ {path}: {_value(before)} -> {_value(after)}" for path, before, after in changed]
    added = [spec.name for spec in change.added]
    again = [name for name in change.removed if name in added]
    lines += [f"- {names}" for names in _by_kind(name for name in change.removed if name not in added)]
    lines += [f"+ {names}" for names in _by_kind(name for name in added if name not in again)]
    lines += [f"~ {names} (once the present episodes are over)" for names in _by_kind(again)]
    lines += [f"~ {names}" for names in _by_kind(spec.name for spec in change.configured)]
    new = (host.name for host in change.hosts if host.name not in there.hosts)
    return [*lines, *(f"+ process {names}" for names in _by_kind(new))] or ["nothing changes"]


def _by_kind(names: Iterable[str]) -> list[str]:
    kinds: dict[str, list[str]] = {}
    for name in sorted(names, key=lambda one: (_kind(one), len(one), one)):
        kinds.setdefault(_kind(name), []).append(name)
    return [ranges(several) for several in kinds.values()]


def _value(value: object) -> str:
    return msgspec.json.encode(value).decode()


class LivePlan:
    """The plan that holds now; `planned` makes another of a deploy file."""

    def __init__(self, system: ActorSystem, plan: Plan, planned: Callable[..., Plan]) -> None:
        self.plan = plan
        self._planned, self._began = planned, asyncio.get_running_loop().time()
        self._limit: asyncio.Timeout | None = None
        self._there = layout(plan.hosts, plan.stages)
        self._change: asyncio.Task[None] | None = None
        self._system = system
        self._refuses = "the run is starting: try again when all its parts are up"
        system.on_command(COMMAND, self._command)

    def begin(self, limit: asyncio.Timeout) -> None:
        """From now on the run, which `limit` ends, can be changed: all that the plan names is there."""
        self._limit, self._refuses = limit, ""

    async def close(self) -> None:
        self._refuses = "the run is ending"
        if self._change is not None:
            self._change.cancel()
            await asyncio.gather(self._change, return_exceptions=True)

    async def _command(self, body: bytes, say: Say) -> None:
        if self._refuses:
            raise ConfigError(self._refuses)
        if self._change is not None and not self._change.done():
            raise ConfigError("another change is under way: wait until it is done")
        try:
            request = decode(body, WantedSettings)
        except ProtocolError as error:
            raise ConfigError(f"this command is of another version than the run: {error}") from None
        self._change = asyncio.ensure_future(self._apply(self._system, request, say))
        await asyncio.shield(self._change)

    async def _apply(self, system: ActorSystem, request: WantedSettings, say: Say) -> None:
        ledger = self.plan.stages[0][0].config
        assert isinstance(ledger, LedgerSettings)
        changed = keys(self.plan.deploy, request.deploy)
        refuse(changed, self.plan.run_dir.name)
        plan = await asyncio.to_thread(
            self._planned, request.deploy, run_dir=self.plan.run_dir, incarnation=ledger.incarnation
        )
        if plan.placer is not None and self.plan.placer is None:
            raise ConfigError("desktops.place: the run began on this machine alone; stop it and go on with --resume")
        change = decide(self._there, wanted(self._there, self.plan.deploy, plan))
        lines = change_lines(changed, change, self._there)
        for line in lines:
            say(line)
        if request.dry_run:
            return
        still = asyncio.ensure_future(_still(system, say))
        try:
            await self._carry_out(system, change, plan.deploy.cluster.wait_s)
        finally:
            still.cancel()
        if self._limit is not None and not self._limit.expired():
            limit_s = request.deploy.run.limit_s
            self._limit.reschedule(None if limit_s is None else self._began + limit_s)
        self.plan = plan
        system.log.emit(CHANGED, lines=lines)
        try:
            run_folder.write(plan.run_dir, deploy_files.STORED, deploy_files.dump(request.deploy).encode())
        except OSError as error:
            stored = plan.run_dir / deploy_files.STORED
            why = f"the run has changed, but {stored}, by which --resume goes on, can't be written: {error.strerror}"
            raise ConfigError(why) from error

    async def _carry_out(self, system: ActorSystem, change: LiveChange, wait_s: float) -> None:
        """First what leaves, so that at no time there is more than the greater of both plans."""
        before = self._there
        leaving = [name for name in change.removed if _kind(name) == SAMPLER]
        seats = [name for name in change.removed if _kind(name) != SAMPLER]
        await asyncio.gather(*(_drain(system, self._there.actors[name]) for name in seats))
        await system.remove(seats)
        self._there = done(self._there, LiveChange(removed=tuple(seats)))
        if leaving:
            await self._configure(system, change.configured)
            await system.remove(leaving)
            self._there = done(self._there, LiveChange(removed=tuple(leaving)))
            for name in leaving:
                gone = Serving(sampler=name, version=None)
                await system.ref("replay").ask_until(gone, timeout_s=ASK_S, give_up_s=math.inf)
        if failed := await self._join(system, change.added, change.hosts, wait_s):
            there = await self._back(system, before, seats, wait_s)
            # Seats that did not stay may have lowered the limits of their process's others.
            hosts = {spec.host for spec in change.added} - {MAIN}
            others = [spec for spec in self._there.actors.values() if spec.host in hosts]
            await self._configure(system, [spec for spec in others if isinstance(spec.config, DesktopSeat)])
            raise ConfigError(f"{failed}; {there}")
        if not leaving:
            await self._configure(system, change.configured)

    async def _configure(self, system: ActorSystem, specs: Sequence[ActorSpec]) -> None:
        await system.configure(*specs)
        self._there = done(self._there, LiveChange(configured=tuple(specs)))

    async def _join(
        self, system: ActorSystem, specs: Sequence[ActorSpec], hosts: Iterable[HostSpec], wait_s: float
    ) -> str:
        """Begin them, all or none; returns why none, "" where all are there."""
        names, hosts = [spec.name for spec in specs], tuple(hosts)
        limit_s = max(wait_s, *(spec.start_timeout_s for spec in specs), 0.0)
        try:
            async with asyncio.timeout(limit_s):
                await system.join(*specs, hosts=hosts)
        except (TimeoutError, ComputerRLError) as error:
            why = error.text if isinstance(error, ActorFailed) else str(error)
            if isinstance(error, TimeoutError):
                why = "; ".join([f"{limit_s:g} s were too short", *system.waits()])
            await system.remove(names)
            return f"{ranges(names)} did not start: {why}"
        self._there = done(self._there, LiveChange(added=tuple(specs), hosts=hosts))
        return ""

    async def _back(self, system: ActorSystem, before: Layout, seats: Sequence[str], wait_s: float) -> str:
        """Begin the seats again that left for what did not start; returns what there is now."""
        specs = [before.actors[name] for name in seats]
        lost = {spec.host for spec in specs} - self._there.hosts.keys()
        hosts = [host for name, host in before.hosts.items() if name in lost]
        failed = await self._join(system, specs, hosts, wait_s) if specs else ""
        gone = [name for name in before.actors if name not in self._there.actors]
        there = f"the run goes on without {ranges(gone)}" if gone else "the run goes on as before"
        return f"{failed}; {there}" if failed else there


async def _drain(system: ActorSystem, spec: ActorSpec) -> None:
    """Let a seat end its episode; one that takes longer than its lease is ended, and the ledger takes the work back."""
    limit_s = RESERVE_WAIT_S + spec.config.desktops.pool.lease_s + REPORT_GIVE_UP_S + ASK_S
    try:
        await system.ref(spec.name).ask_until(Drain(), timeout_s=limit_s, give_up_s=limit_s)
    except (ActorGone, DeadlineExceeded) as error:
        system.log.emit(DRAIN_FAILED, seat=spec.name, cause=str(error))


async def _still(system: ActorSystem, say: Say) -> None:
    """Say what a change waits for, as long as it does."""
    while True:
        await asyncio.sleep(SAY_EVERY_S)
        waits = list(system.waits())
        try:
            busy = [one for one in await system.statuses() if one.current == Drain.__name__]
        except ComputerRLError as error:
            waits, busy = [*waits, f"no status: {error}"], []
        waits += [f"{one.name} ends its episode: {one.doing}" for one in busy[:3]]
        waits += [f"{len(busy)} seats end their episodes"] * bool(busy)
        for line in waits or ["parts start and take their settings"]:
            say(line)
