"""What a run needs of this machine's room: desktops' sums, disk, descriptors, memory.

Invariant: looking changes nothing. Each check that fails names the setting or the command that makes it pass.
"""

from __future__ import annotations

import resource
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec
import psutil

from actors.cluster import paths as places
from actors.cluster.config.schema import Deploy
from actors.cluster.runs import compose
from actors.desktop.providers.sandbox import cgroups
from actors.desktop.providers.sandbox.shares import Sum
from apis.tasksets import published
from runtime.errors import ConfigError

NEEDED_GB = 3.0
NEEDED_FILES = 4096  # descriptors: about 12 per desktop, and the transports
# MiB that a desktop takes at the most with an application, as `deploy/results/desktops.md` measured it.
APP_MIB = {"code": 504, "google_chrome": 232, "libreoffice_calc": 150, "libreoffice_impress": 150}
APP_MIB["libreoffice_writer"] = APP_MIB["libreoffice_calc"]
LIGHT_MIB = 64
# What the kernel has for the whole machine, and lets its owner raise.
RAISED = {"open files": "fs.file-max", "terminals": "kernel.pty.max"}


class Check(msgspec.Struct, kw_only=True, frozen=True):
    """One thing that was looked at."""

    name: str
    ok: bool
    found: str
    mend: str | None = None  # the command that mends it
    needed: bool = True  # False: a run works without it, only less well

    @property
    def fatal(self) -> bool:
        """Whether a run can't work."""
        return self.needed and not self.ok


def check_sums(deploy: Deploy, apps: Collection[str]) -> Iterator[Check]:
    """What all desktops of the file may take together, with their tasks' `apps`, next to what the machine has."""
    try:
        sums = compose.sums_of(deploy.desktops)
    except ConfigError as error:
        yield Check(name="desktops", ok=False, found=str(error), mend="--set desktops.count=N, or a larger machine")
        return
    held = cgroups.held()
    for one, taken in zip(sums, (held.memory_bytes >> 20, held.processes, 0, 0), strict=True):
        found = one.told + (f"; desktops that are there now hold {taken}" if taken else "")
        mend = f"sysctl -w {RAISED[one.name]}={2 * one.total}" if one.name in RAISED else "wait for other runs to end"
        mend += ", or --set desktops.count to fewer"
        yield Check(name=f"all {one.name}", ok=one.total + taken <= one.room, found=found, mend=mend, needed=False)
    if sums:
        yield _check_share(sums[0], apps)


def _check_share(memory: Sum, apps: Collection[str]) -> Check:
    """Whether the memory of one desktop is enough for the largest application of its tasks."""
    name = max(sorted(apps), key=lambda app: APP_MIB.get(app, LIGHT_MIB), default="")
    least = APP_MIB.get(name, LIGHT_MIB)
    found = f"{memory.each} MiB for each of {memory.desktops}, {least} needed{f' by {name}' if name else ''}"
    fewer = f"a machine with more memory, or --set desktops.count and desktops.warm_pool: {memory.room // least} in all"
    return Check(name="desktop memory", ok=memory.each >= min(least, memory.asked), found=found, mend=fewer)


def check_disk(place: Path) -> Check:
    """Free space where the run folder goes."""
    try:
        near = places.nearest_there(place)
        free = shutil.disk_usage(near).free / 1e9
    except OSError as error:
        return Check(name="disk", ok=False, found=f"{place}: {error.strerror}", mend="use --runs on another folder")
    return Check(
        name="disk", ok=free >= NEEDED_GB, found=f"{free:.0f} GB free at {near}", mend="use --runs on a larger disk"
    )


def check_files() -> Check:
    """File descriptors that this process may open; `run` raises its soft limit to the hard one."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    ok = hard == resource.RLIM_INFINITY or hard >= NEEDED_FILES
    found = "no limit" if hard == resource.RLIM_INFINITY else f"{hard} at most"
    return Check(name="open files", ok=ok, found=found, mend=f"ulimit -n {NEEDED_FILES}")


def check_memory(deploy: Deploy) -> Check:
    """Memory for the desktops and the model, and for the published metrics where they are asked."""
    need = 2.0 + 0.15 * deploy.desktops.count + deploy.evaluation.published_metrics * published.MOST_BYTES / 1e9
    have = psutil.virtual_memory().available / 1e9
    found = f"{have:.1f} GB available, about {need:.1f} GB needed"
    return Check(name="memory", ok=have >= need, found=found, mend="--set desktops.count=2", needed=False)
