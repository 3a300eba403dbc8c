"""A soak of a run whose desktops are on other machines: they are cut off, lose their Ray, and go by `apply`.

Invariant: the machines are the soak's own (`tests/soak/machines.py`): nothing but them and the run is
touched. A machine that was cut off is put back. What has left or come by `apply` is as it was at the end. No command
outlives a signal to the soak.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from actors.desktop.providers.sandbox import leftovers
from actors.replay.config import TaskRange
from actors.replay.rules.cold_start import family_of
from runtime.errors import ConfigError
from runtime.program import SIGNALS
from tests.soak import levels, recorded
from tests.soak.inject import Hit
from tests.soak.kinds import MACHINE_KINDS, Kind, Planned
from tests.soak.machines import Machines, refuse_hidden
from tests.soak.soak import Said, Soak, SoakOptions
from tests.soak.verdict import SoakResult

SEATS = 2  # of a process
HAS: tuple[dict[str, float], ...] = (
    {},
    {"desktops": 2 * SEATS},
    {"desktops": 2 * SEATS},
)  # the run starts on the first
AT_FIRST = {"apply_desktops": 2, "apply_samplers": 1}  # processes of desktops, and samplers: one or two of each
T = TypeVar("T")
JOIN_S, APPLY_S, LOOK_S = 300.0, 300.0, 0.2


def whole(wanted: SoakOptions, said: Said) -> SoakResult | None:
    """Build the machines, soak and remove them; None when a signal ended it.

    Raises ConfigError: for what is wanted before anything is built, and where the machines don't come up.
    """
    with tempfile.TemporaryDirectory(prefix="computerrl-machines-") as logs, contextlib.ExitStack() as stack:
        cluster = Machines(HAS, Path(logs))
        soak = MachineSoak(wanted, said, cluster)
        stack.callback(leftovers.reap, soak.state_dir)  # last, once the machines' processes have ended
        for end in SIGNALS:
            stack.callback(signal.signal, end, signal.signal(end, signal.default_int_handler))
        try:
            stack.enter_context(cluster)
            stack.callback(_deaf)
            said("three machines: waiting for their Ray")
            cluster.serve()
            cluster.until_served(JOIN_S)
        except (OSError, subprocess.SubprocessError) as error:  # a TimeoutError is an OSError
            raise ConfigError(f"--machines needs root, ip and make ray: {error}") from error
        return asyncio.run(soak.go())


class MachineSoak(Soak):
    """One soak of machines."""

    kinds: Mapping[str, Kind] = MACHINE_KINDS

    def __init__(self, wanted: SoakOptions, said: Said, cluster: Machines) -> None:
        refuse_hidden(wanted.runs, f"--runs {wanted.runs}")
        self._cluster = cluster
        self._layout = dict(AT_FIRST)
        where = [
            "cluster.engine=ray", f"cluster.address={cluster.ray}", f"desktops.place={{desktops: {SEATS}}}",
            *(one for kind, number in AT_FIRST.items() for one in _keys(kind, number)),
        ]  # fmt: skip
        super().__init__(msgspec.structs.replace(wanted, overrides=[*wanted.overrides, *where]), said)

    def prepared(self) -> list[str]:
        """Has the run begin from demonstrations that come along, where they are here: what is soaked is RL."""
        recording = recorded.bundled()
        if self.deploy.demos.source or not recording.is_file():
            return []
        families = {one.family if isinstance(one, TaskRange) else family_of(one) for one in self.deploy.tasks.demo}
        into = self.run.with_suffix(".parquet")
        written = len(recorded.write(families, into))
        return [f"demos.source={into}", f"demos.count={written}"] if written else []

    def entered(self, command: list[str]) -> list[str]:
        """`command` as it is executed on the first machine, where the run was started."""
        return self._cluster.entered(0, command)

    def env(self) -> dict[str, str] | None:
        """The environment of commands, with the token of the machines' Ray."""
        return dict(self._cluster.env)

    def machines(self) -> list[levels.Elsewhere]:
        """This one and those of the cluster."""
        cluster = self._cluster
        there = [
            levels.Elsewhere(cluster.folder(number, ""), cluster.mounts(number), self._hosts(number))
            for number in range(len(HAS))
        ]
        return [levels.HERE, *there]

    def inject(self, planned: Planned) -> Hit | None:
        """Break a machine that has desktops, or have a process of desktops or a sampler leave or come."""
        if planned.kind in AT_FIRST:
            return self._apply(planned.kind)
        return self._tried(planned.kind, lambda: self._machine_hit(planned))

    def unsettled(self) -> list[Planned]:
        """What is not as it was at first, since the last `apply`."""
        return [Planned(0.0, kind, 0.0) for kind, number in self._layout.items() if number != AT_FIRST[kind]]

    def _machine_hit(self, planned: Planned) -> Hit | None:
        able = [number for number in range(1, len(HAS)) if self._hosts(number)]
        if not able:
            return None
        number = able[int(planned.pick * len(able))]
        name = self._cluster.name(number)
        if planned.kind == "raylet_kill":
            return Hit(name) if self._cluster.kill_raylet(number) else None
        self._cluster.cut(number)
        return Hit(name, undo=lambda: self._tried(f"{name} back on the switch", lambda: self._cluster.plug(number)))

    def held(self) -> list[str]:
        """What carries the run's name, and what else the run left on all machines."""
        found = super().held()
        for number in range(len(HAS)):
            found += [f"process {pid} on machine {number}" for pid in self._hosts(number)]
            for folder in ("run/computerrl", "tmp"):
                there: Path = self._cluster.folder(number, folder)
                names = [one.name for one in there.iterdir() if one.is_dir()] if there.is_dir() else []
                found += [
                    f"{name} on machine {number}" for name in names if name.startswith(("crl.", "computerrl-host"))
                ]
        return found

    def _hosts(self, number: int) -> tuple[int, ...]:
        """The run's processes on a machine, none where it does not say."""
        return tuple(self._tried(f"processes of machine {number}", lambda: self._cluster.hosts(number)) or ())

    def _apply(self, kind: str) -> Hit:
        """From the one number to the other."""
        number = 3 - self._layout[kind]
        what = f"{kind.removeprefix('apply_')} {self._layout[kind]} to {number}"
        words = [word for one in _keys(kind, number) for word in ("--set", one)]
        if self._tried(what, lambda: self._commanded(what, self.command("apply", self.run.name, *words))):
            self._layout[kind] = number
        return Hit(what)

    def _commanded(self, what: str, command: list[str]) -> bool:
        """Whether the command did what it says; it is ended where it takes too long, or the soak ends."""
        with tempfile.TemporaryFile() as said:
            asked = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
            give_up = time.monotonic() + APPLY_S
            while asked.poll() is None and time.monotonic() < give_up and not self.ending:
                time.sleep(LOOK_S)
            if asked.poll() is None:
                asked.kill()
                asked.wait()
                if not self.ending:
                    raise subprocess.TimeoutExpired(command, APPLY_S)
            if asked.returncode and not self.ending:
                said.seek(0)
                self.reasons.append(f"{what}: {said.read().decode(errors='replace').strip()[-300:]}")
            return not asked.returncode

    def _tried(self, what: str, act: Callable[[], T]) -> T | None:
        """What `act` gives; a command that fails or takes too long is a reason against the run, and no end of it."""
        try:
            return act()
        except subprocess.SubprocessError as error:
            self.reasons.append(f"{what}: {error}"[:300])
            return None


def _deaf() -> None:
    """Hear no signal: the machines are removed whole, which takes some seconds."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _keys(kind: str, number: int) -> list[str]:
    """What `--set` says for so many."""
    if kind == "apply_samplers":
        return [f"samplers.count={number}"]
    return [f"desktops.processes={number}", f"desktops.count={SEATS * number}"]
