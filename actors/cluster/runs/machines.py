"""What the machines that a cluster finds lack for a run.

Invariant: each process that a run would place is placed as in the run, looks at its machine, and ends. Nothing stays
there.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import msgspec

from actors.cluster import paths
from actors.cluster.config.schema import Deploy
from actors.cluster.runs import doctor, placement
from actors.cluster.runs.doctor import Check
from actors.desktop.config import SshConfig
from actors.desktop.files import office
from actors.desktop.providers.ssh import office_releases
from runtime.actor import Actor, handles
from runtime.errors import ComputerRLError
from runtime.messaging.message import Message, Request
from runtime.system import ActorSpec, ActorSystem, HostSpec

WAIT_S = 60.0  # for machines, where a run would wait longer
LOOK_S = 120.0


class LookedFor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is looked for: what a process needs that `key` of the deploy file places."""

    deploy: Deploy
    key: str


class MachineLooked(Message):
    """What was found on the machine."""

    checks: list[Check]


class LookAtMachine(Request[MachineLooked]):
    """What does your machine lack?"""


class Looker(Actor):
    """Looks at the machine that it was placed on."""

    config: LookedFor

    @handles(LookAtMachine, slow_after_s=LOOK_S)
    async def look(self, _: LookAtMachine) -> MachineLooked:
        return MachineLooked(checks=await asyncio.to_thread(doctor.examine_part, self.config.deploy, self.config.key))


async def examine(deploy: Deploy, runs: Path = Path(paths.RUNS)) -> list[Check]:
    """The checks of all machines, each named with its key and machine; a single failed one where they can't be had.

    `runs` is the folder of runs, which they all have to share.
    """
    placer = placement.placer_of(deploy)
    if placer is None:
        return []
    placer = msgspec.structs.replace(placer, wait_s=min(WAIT_S, placer.wait_s))
    hosts = [
        (HostSpec(name=host.name, place=host.place), key)
        for key, several in placement.placed(deploy).items()
        for host in several
        if host.place
    ]
    specs = [
        ActorSpec(name=host.name, factory=Looker, config=LookedFor(deploy=deploy, key=key), host=host.name)
        for host, key in hosts
    ]
    try:
        await asyncio.to_thread(runs.mkdir, parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(prefix=".doctor-", dir=runs)
    except OSError as error:
        found = f"the folder {runs}, which all machines have to see, can't be written: {error.strerror}"
        return [Check("machines", False, found, "call it from the folder that runs are started from")]
    with scratch as folder:
        try:
            async with ActorSystem(Path(folder), hosts=[host for host, _ in hosts], placer=placer) as system:
                if refused := await _refused(system, specs, placer.wait_s):
                    return [Check("machines", False, refused)]
                asked = (system.ref(spec.name).ask(LookAtMachine(), timeout_s=LOOK_S) for spec in specs)
                answers = await asyncio.gather(*asked)
                at = {status.name: status.machine for status in await system.statuses()}
                every = {  # of several processes on one machine the last one's
                    (spec.config.key, at[spec.name], check.name): check
                    for spec, answer in zip(specs, answers, strict=True)
                    for check in answer.checks
                }
                return [
                    msgspec.structs.replace(check, name=f"{name} ({key} on {machine})")
                    for (key, machine, name), check in every.items()
                ]
        except ComputerRLError as error:
            return [Check("machines", False, str(error))]


async def offices(deploy: Deploy) -> list[Check]:
    """SSH machines whose LibreOffice is of another release than the one here that judges what they save."""
    provider = deploy.desktops.provider
    judged = not deploy.desktops.place and doctor.judged_by_office(doctor.apps_of(deploy)) and office.PROGRAM.is_file()
    if not isinstance(provider, SshConfig) or not judged:
        return []
    here, there = await asyncio.to_thread(office.release), await office_releases(provider)
    return [
        Check(
            name=f"judge of {machine}",
            ok=False,
            found=f"its LibreOffice is {release or 'not known'}, here {here} judges: what is saved there does not pass",
            mend="install the same release on both",
            needed=False,
        )
        for machine, release in there.items()
        if release != here
    ]


async def _refused(system: ActorSystem, specs: list[ActorSpec], wait_s: float) -> str:
    """Why they can't be placed; "" once they are."""
    spawned, failed = asyncio.ensure_future(system.spawn(*specs)), asyncio.ensure_future(system.failed())
    try:
        await asyncio.wait({spawned, failed}, timeout=wait_s + LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            return failed.result()
        if not spawned.done():
            return "; ".join(system.waits()) or f"they did not start in {wait_s + LOOK_S:g} s"
        error = spawned.exception()
        return "" if error is None else str(error) or repr(error)
    finally:
        for future in (spawned, failed):
            future.cancel()
        await asyncio.gather(spawned, failed, return_exceptions=True)
