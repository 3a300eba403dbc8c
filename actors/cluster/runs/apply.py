"""A live run becomes what another deploy file says.

Invariant: a seat that leaves has reported its episode, and a sampler that leaves has answered or its requests go
elsewhere: no episode is lost, and so no group. What is there is known after every part of a change, also where a later
part fails. `deploy.yaml` in the run's folder names the new settings once all of them hold.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence

import msgspec

from actors.cluster import events
from actors.cluster.config import deploy_files
from actors.cluster.config.schema import Deploy
from actors.cluster.runs import changes, run_folder
from actors.cluster.runs.changes import SAMPLER, Key, LiveChange
from actors.cluster.runs.compose import Plan, ranges
from actors.desktop.actor import REPORT_GIVE_UP_S, RESERVE_WAIT_S, DesktopSeat, Drain
from actors.desktop.providers.sandbox import shares
from actors.replay.config import LedgerSettings
from actors.replay.messages import Serving
from runtime.control import Say
from runtime.errors import ActorFailed, ActorGone, ComputerRLError, ConfigError, DeadlineExceeded, ProtocolError
from runtime.messaging.message import decode
from runtime.spec import MAIN, ActorSpec, HostSpec
from runtime.system import ActorSystem

COMMAND = "apply"
SAY_EVERY_S = 15.0
ASK_S = 30.0


class WantedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What `computerrl apply` asks of a run."""

    deploy: Deploy
    dry_run: bool = False


class LivePlan:
    """The plan that holds now; `planned` makes another of a deploy file."""

    def __init__(self, system: ActorSystem, plan: Plan, planned: Callable[..., Plan]) -> None:
        self.plan = plan
        self._planned, self._began = planned, asyncio.get_running_loop().time()
        self._limit: asyncio.Timeout | None = None
        self._there = changes.layout(plan.hosts, plan.stages)
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
        found = changes.keys(self.plan.deploy, request.deploy)
        refuse(found, self.plan.run_dir.name)
        plan = await asyncio.to_thread(
            self._planned, request.deploy, run_dir=self.plan.run_dir, incarnation=ledger.incarnation
        )
        if plan.placer is not None and self.plan.placer is None:
            raise ConfigError("desktops.place: the run began on this machine alone; stop it and go on with --resume")
        change = changes.decide(self._there, wanted(self._there, self.plan.deploy, plan))
        for line in change_lines(found, change, self._there):
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
        system.log.emit(events.CHANGED, lines=change_lines(found, change, self._there))
        try:
            run_folder.write(plan.run_dir, deploy_files.STORED, deploy_files.dump(request.deploy).encode())
        except OSError as error:
            stored = plan.run_dir / deploy_files.STORED
            why = f"the run has changed, but {stored}, by which --resume goes on, can't be written: {error.strerror}"
            raise ConfigError(why) from error

    async def _carry_out(self, system: ActorSystem, change: LiveChange, wait_s: float) -> None:
        """First what leaves, so that at no time there is more than the greater of both plans."""
        before = self._there
        leaving = [name for name in change.removed if _is_sampler(name)]
        seats = [name for name in change.removed if not _is_sampler(name)]
        await asyncio.gather(*(_drain(system, self._there.actors[name]) for name in seats))
        await system.remove(seats)
        self._there = changes.done(self._there, LiveChange(removed=tuple(seats)))
        if leaving:
            await self._configure(system, change.configured)
            await system.remove(leaving)
            self._there = changes.done(self._there, LiveChange(removed=tuple(leaving)))
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
        self._there = changes.done(self._there, LiveChange(configured=tuple(specs)))

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
        self._there = changes.done(self._there, LiveChange(added=tuple(specs), hosts=hosts))
        return ""

    async def _back(self, system: ActorSystem, before: changes.Layout, seats: Sequence[str], wait_s: float) -> str:
        """Begin the seats again that left for what did not start; returns what there is now."""
        specs = [before.actors[name] for name in seats]
        lost = {spec.host for spec in specs} - self._there.hosts.keys()
        hosts = [host for name, host in before.hosts.items() if name in lost]
        failed = await self._join(system, specs, hosts, wait_s) if specs else ""
        gone = [name for name in before.actors if name not in self._there.actors]
        there = f"the run goes on without {ranges(gone)}" if gone else "the run goes on as before"
        return f"{failed}; {there}" if failed else there


def wanted(there: changes.Layout, deploy: Deploy, plan: Plan) -> changes.Layout:
    """What a run of `deploy`, whose layout is `there`, is to be by `plan`."""
    then, desktops = changes.layout(plan.hosts, plan.stages), plan.deploy.desktops
    if desktops.place or desktops.provider != deploy.desktops.provider:
        return then
    return changes.kept(there, then, shares.room())


async def _drain(system: ActorSystem, spec: ActorSpec) -> None:
    """Let a seat end its episode; one that takes longer than its lease is ended, and the ledger takes the work back."""
    limit_s = RESERVE_WAIT_S + spec.config.desktops.pool.lease_s + REPORT_GIVE_UP_S + ASK_S
    try:
        await system.ref(spec.name).ask_until(Drain(), timeout_s=limit_s, give_up_s=limit_s)
    except (ActorGone, DeadlineExceeded) as error:
        system.log.emit(events.DRAIN_FAILED, seat=spec.name, cause=str(error))


async def _still(system: ActorSystem, say: Say) -> None:
    """Say what a change waits for, as long as it does."""
    while True:
        await asyncio.sleep(SAY_EVERY_S)
        for line in system.waits():
            say(line)
        if system.waits():
            continue
        try:
            busy = [one for one in await system.statuses() if one.current == Drain.__name__]
        except ComputerRLError as error:
            say(f"no status: {error}")
            continue
        for one in busy[:3]:
            say(f"{one.name} ends its episode: {one.doing}")
        say(f"{len(busy)} seats end their episodes" if busy else "parts start and take their settings")


def _is_sampler(name: str) -> bool:
    return name.startswith(f"{SAMPLER}/")


def refuse(found: Iterable[Key], run: str) -> None:
    """Raise ConfigError where one of the changed keys is read once, at a run's start."""
    if dead := changes.refused(found):
        more = f" and {len(dead) - 1} more ({', '.join(dead[1:4])})" if len(dead) > 1 else ""
        raise ConfigError(
            f"{dead[0]}{more}: run {run} reads it at its start alone; stop it with Ctrl-C, then go on with"
            f"  --resume --set {dead[0]}=VALUE"
        )


def change_lines(found: Sequence[Key], change: LiveChange, there: changes.Layout) -> list[str]:
    """A line for each thing that changes: `+` begins, `-` ends, `~` goes on otherwise or begins again."""
    lines = [f"~ {path}: {_value(before)} -> {_value(after)}" for path, before, after in found]
    added = {spec.name: spec for spec in change.added}
    again = [name for name in change.removed if name in added]
    gone = [name for name in change.removed if name not in added]
    fresh = [name for name in added if name not in again]
    lines += [f"- {ranges(names)}" for names in _by_kind(gone)]
    lines += [f"+ {ranges(names)}" for names in _by_kind(fresh)]
    lines += [f"~ {ranges(names)} (once the present episodes are over)" for names in _by_kind(again)]
    lines += [f"~ {ranges(names)}" for names in _by_kind([spec.name for spec in change.configured])]
    hosts = [host.name for host in change.hosts]
    lines += [f"+ process {ranges(new)}" for new in _by_kind([name for name in hosts if name not in there.hosts])]
    return lines or ["nothing changes"]


def _by_kind(names: Sequence[str]) -> list[list[str]]:
    kinds: dict[str, list[str]] = {}
    for name in sorted(names, key=lambda one: (one.partition("/")[0], len(one), one)):
        kinds.setdefault(name.partition("/")[0], []).append(name)
    return list(kinds.values())


def _value(value: object) -> str:
    return msgspec.json.encode(value).decode()
