"""A soak of a run whose desktops are on other machines: they are cut off, lose their Ray, and go by `apply`.

Invariant: the machines are the soak's own (`actors/cluster/bench/machines.py`): nothing but them and the run is
touched. A machine that was cut off is put back, and desktops that have left by `apply` come again.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from actors.cluster.bench.machines import Machines, until
from actors.cluster.bench.soak.inject import Hit
from actors.cluster.bench.soak.kinds import MACHINE_KINDS, Kind, Planned
from actors.cluster.bench.soak.soak import Said, Soak, SoakOptions
from actors.cluster.bench.soak.verdict import SoakResult
from runtime.errors import ConfigError

SEATS = 2  # of a process
HAS: tuple[dict[str, float], ...] = (
    {},
    {"desktops": 2 * SEATS},
    {"desktops": 2 * SEATS},
)  # the run starts on the first
T = TypeVar("T")
JOIN_S, APPLY_S = 300.0, 300.0


def whole(wanted: SoakOptions, said: Said) -> SoakResult | None:
    """Build the machines, soak and remove them; None when a signal ended it.

    Raises ConfigError: for what is wanted before anything is built, and where the machines don't come up.
    """
    with tempfile.TemporaryDirectory(prefix="computerrl-machines-") as logs, contextlib.ExitStack() as stack:
        cluster = Machines(HAS, Path(logs))
        soak = MachineSoak(wanted, said, cluster)
        try:
            stack.enter_context(cluster)
            said("three machines: waiting for their Ray")
            cluster.serve()
            for number in range(len(HAS)):
                until(lambda k=number: cluster.joined(k), JOIN_S, f"Ray of machine {number}")  # type: ignore[misc]
        except (OSError, subprocess.SubprocessError) as error:  # a TimeoutError is an OSError
            raise ConfigError(f"--machines: {error}; it needs root, ip and make ray") from error
        return asyncio.run(soak.go())


class MachineSoak(Soak):
    """One soak of machines."""

    kinds: Mapping[str, Kind] = MACHINE_KINDS

    def __init__(self, wanted: SoakOptions, said: Said, cluster: Machines) -> None:
        self._cluster = cluster
        where = [
            "cluster.engine=ray", f"cluster.address={cluster.ray}", f"desktops.place={{desktops: {SEATS}}}",
            *self._so_many(2),
        ]  # fmt: skip
        super().__init__(msgspec.structs.replace(wanted, overrides=[*wanted.overrides, *where]), said)

    def entered(self, command: list[str]) -> list[str]:
        """`command` as it is executed on the first machine, where the run was started."""
        return self._cluster.entered(0, command)

    def env(self) -> dict[str, str] | None:
        """The environment of commands, with the token of the machines' Ray."""
        return dict(self._cluster.env)

    def inject(self, planned: Planned) -> Hit | None:
        """Break a machine that has desktops, or have some desktops leave."""
        if planned.kind == "apply_fewer":
            self._apply(1)
            return Hit("desktops 2", undo=lambda: self._apply(2))
        return self._tried(planned.kind, lambda: self._machine_hit(planned))

    def _machine_hit(self, planned: Planned) -> Hit | None:
        able = [number for number in range(1, len(HAS)) if self._cluster.hosts(number)]
        if not able:
            return None
        number = able[int(planned.pick * len(able))]
        name = self._cluster.name(number)
        if planned.kind == "raylet_kill":
            return Hit(name) if self._cluster.kill_raylet(number) else None
        self._cluster.cut(number)
        return Hit(name, undo=lambda: self._tried(f"{name} back on the switch", lambda: self._cluster.plug(number)))

    def held(self) -> list[str]:
        """What carries the run's name here, and what the run left on all machines."""
        found = super().held()
        for number in range(len(HAS)):
            pids = self._tried(f"processes of machine {number}", lambda k=number: self._cluster.hosts(k)) or []  # type: ignore[misc]
            found += [f"process {pid} on machine {number}" for pid in pids]
            for folder in ("run/computerrl", "tmp"):
                there: Path = self._cluster.folder(number, folder)
                names = [one.name for one in there.iterdir() if one.is_dir()] if there.is_dir() else []
                found += [
                    f"{name} on machine {number}" for name in names if name.startswith(("crl.", "computerrl-host"))
                ]
        return found

    def _so_many(self, processes: int) -> list[str]:
        return [f"desktops.processes={processes}", f"desktops.count={SEATS * processes}"]

    def _apply(self, processes: int) -> None:
        words = [word for one in self._so_many(processes) for word in ("--set", one)]
        command, what = self.command("apply", self.run.name, *words), f"apply to {processes} processes"
        done = self._tried(
            what, lambda: subprocess.run(command, capture_output=True, text=True, timeout=APPLY_S, check=False)
        )
        if done is not None and done.returncode:
            self.reasons.append(f"{what}: {(done.stdout + done.stderr).strip()[-300:]}")

    def _tried(self, what: str, act: Callable[[], T]) -> T | None:
        """What `act` gives; a command that fails or takes too long is a reason against the run, and no end of it."""
        try:
            return act()
        except subprocess.SubprocessError as error:
            self.reasons.append(f"{what}: {error}"[:300])
            return None
