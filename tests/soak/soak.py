"""One soak from start to verdict.

Invariant: the run is a real one: the user's command starts it, and it is stopped as users stop it. This process looks
at the run from outside and breaks its parts. However the soak ends, its run has ended before.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil

from actors.cluster.config import deploy_files
from actors.cluster.runs import run_folder
from actors.desktop.config import SandboxConfig
from actors.desktop.providers.sandbox import ending
from actors.replay.database.ledger_file import LEDGER
from runtime.errors import ConfigError
from runtime.program import SIGNALS
from tests.soak.faults import KINDS, Planned, inject, mark_of, schedule
from tests.soak.log import TICK_S, RunLog
from tests.soak.verdict import Broken, Level, SoakResult, audited, bad, look, returns, things, windows

SAMPLE_S = 5.0
BEGIN_S = 1200.0  # until the run is in RL
VICTIM_S = 60.0  # until there is something to hit
# What ends the run, and how long it may take: at the end of a soak, and when somebody wants it over.
STOP: tuple[tuple[signal.Signals, float], ...] = ((signal.SIGINT, 180.0), (signal.SIGKILL, 10.0))
STOP_NOW: tuple[tuple[signal.Signals, float], ...] = (
    (signal.SIGINT, 10.0), (signal.SIGTERM, 5.0), (signal.SIGKILL, 10.0),
)  # fmt: skip
LINGER_S = 10.0  # for the kernel to bury what was killed


class SoakOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to do."""

    file: str = "soak"
    overrides: list[str] = []
    runs: Path = Path("runs")
    minutes: float = 30.0  # in RL, from its beginning to the stop
    seed: int = 0
    every_s: float = 20.0


class Soak:
    """The state of one soak of a run on this machine."""

    def __init__(self, wanted: SoakOptions, report: Callable[[str], None]) -> None:
        deploy, _ = deploy_files.load(wanted.file, wanted.overrides)
        provider = deploy.desktops.provider
        if not isinstance(provider, SandboxConfig):
            raise ConfigError("desktops.provider: a soak breaks sandboxes of this machine, not sessions of others")
        if os.geteuid() != 0:
            raise ConfigError("make soak needs root: it sends signals to other users' processes")
        if not (1 <= wanted.minutes < math.inf and 0 < wanted.every_s < math.inf):
            raise ConfigError("--minutes is at least 1 and --every above 0, and both are finite")
        if deploy.run.limit_s is not None and deploy.run.limit_s < 60 * wanted.minutes + BEGIN_S:
            raise ConfigError(
                f"run.limit_s is {deploy.run.limit_s:g}: shorter than the soak (minutes and {BEGIN_S:g} s)"
            )
        self.wanted, self.deploy = wanted, deploy
        self.report = report
        self.state_dir = provider.folder
        seats = deploy.desktops
        self.desktops = seats.count + seats.processes * (seats.warm_pool + 1)  # leased, spare, one that is thrown away
        self.run = wanted.runs.resolve() / f"soak-{time.strftime('%Y%m%d-%H%M%S')}"
        self.log = RunLog(self.run)
        self.samples: list[Level] = []
        self.broken: list[Broken] = []
        self.missed = 0
        self.reasons: list[str] = []
        self.process: asyncio.subprocess.Process  # the run's entry point
        self.begun = 0.0

    @property
    def at_s(self) -> float:
        """Seconds since the run works."""
        return time.monotonic() - self.begun

    async def go(self) -> SoakResult:
        """Start, break, stop, judge. A signal (SIGINT, SIGTERM) cancels this, a second one kills the run."""
        load = os.getloadavg()[0]
        command = [sys.executable, "-P", "-m", "actors.cluster.cli", "run", self.wanted.file]
        command += ["--name", self.run.name, "--runs", str(self.run.parent)]
        for override in self.wanted.overrides:
            command += ["--set", override]
        self.run.parent.mkdir(parents=True, exist_ok=True)
        output = self.run.with_suffix(".out")
        with output.open("wb") as sink:
            self.process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
            )
        mine = {self.process.pid}
        working = asyncio.create_task(self._begin_and_work(output, mine))
        self._on_signal(working.cancel)
        try:
            await working
        except BaseException:
            self._on_signal(self.process.kill)
            await self._stop(STOP_NOW)
            await self._buried()
            raise
        self._on_signal(self.process.kill)
        status = await self._stop(STOP)
        self.log.close()
        return self._found(load, status, await self._left(mine))

    def _on_signal(self, act: Callable[[], object]) -> None:
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, act)

    async def _begin_and_work(self, output: Path, mine: set[int]) -> None:
        await self._until_works(output)
        try:
            async with asyncio.timeout(60.0 * self.wanted.minutes):
                await self._work(mine)
            self.reasons.append(f"the run ended by itself after {self.at_s:.0f} s ({self._verdict()})")
        except TimeoutError:
            return

    async def _until_works(self, output: Path) -> None:
        """Until the run is in RL. Raises ConfigError when it never gets there."""
        self.report(f"run {self.run.name}: waiting until it is in RL (demonstrations and cloning first)")
        give_up = time.monotonic() + BEGIN_S
        while not self.log.in_rl:
            if self.process.returncode is not None or time.monotonic() > give_up:
                raise ConfigError(f"{self.run.name} is not in RL after {BEGIN_S:g} s or has ended: see {output}")
            await asyncio.sleep(TICK_S)
            self.log.read()
        self.begun = time.monotonic()

    async def _work(self, mine: set[int]) -> None:
        """Sample levels and inject faults until the run ends. A defect of ours ends the soak."""
        first, breaking, _ = windows(self.wanted.minutes)
        plan = schedule(self.wanted.seed, breaking[1] - breaking[0], self.wanted.every_s)
        self.report(
            f"in RL; level taken until {first[1]:.0f} s, then {len(plan)} faults, stop at {self.wanted.minutes:g} min"
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._sample(mine)), group.create_task(self._break_all(plan, *breaking))]
            await self.process.wait()
            for task in tasks:
                task.cancel()

    def _verdict(self) -> str:
        record = run_folder.read_record(self.run)
        return f"{record.verdict}: {record.reason}"

    async def _sample(self, mine: set[int]) -> None:
        while True:
            try:
                entry = psutil.Process(self.process.pid)
                mine.update(child.pid for child in entry.children(recursive=True))
                self.samples.append(await asyncio.to_thread(look, self.at_s, entry, self.run, self.state_dir))
            except psutil.NoSuchProcess:
                return
            await asyncio.sleep(SAMPLE_S)

    async def _break_all(self, plan: list[Planned], start_s: float, end_s: float) -> None:
        for number, planned in enumerate(plan):
            while self.at_s < min(start_s + planned.at_s, end_s):
                self.log.read()
                await asyncio.sleep(TICK_S)
            if self.at_s >= end_s:
                self.missed += len(plan) - number
                break
            broken = None
            try:
                broken = await self._break(planned)
            finally:
                self.missed += broken is None
            if broken is not None:
                self.broken.append(broken)
                note = f"{broken.state} by {broken.sign} after {broken.after_s:.1f} s" if broken.sign else broken.state
                self.report(f"{broken.at_s:5.0f} s  {broken.kind:<15} {broken.victim:<24} {note}")

    async def _break(self, planned: Planned) -> Broken | None:
        kind = KINDS[planned.kind]
        hit, give_up = None, time.monotonic() + VICTIM_S
        while hit is None:
            if time.monotonic() > give_up:
                return None
            self.log.read()
            at, when = time.monotonic(), self.at_s
            hit = await asyncio.to_thread(
                inject, planned.kind, planned.pick, self.run, self.process.pid, self.state_dir
            )
            if hit is None:
                await asyncio.sleep(TICK_S)
        ready = hit.desktop in self.log.booted
        try:
            judged = await self.log.named(kind, at, hit.desktop, ready=ready)
            if kind.whole:
                await asyncio.sleep(max(0.0, at + kind.hold_s - time.monotonic()))
        finally:
            if hit.undo is not None:
                await asyncio.to_thread(hit.undo)
        return Broken(
            at_s=when, kind=kind.name, victim=hit.victim, state=str(judged.state), sign=judged.sign,
            after_s=judged.after_s, deadline_s=kind.deadline_s,
        )  # fmt: skip

    async def _stop(self, ways: tuple[tuple[signal.Signals, float], ...]) -> int | None:
        """Stop the run as Ctrl-C does, and harder when that takes too long; its exit status."""
        self.report("stopping the run (a signal kills it)")
        for number, patience_s in ways:
            if self.process.returncode is not None:
                break
            self.process.send_signal(number)
            try:
                async with asyncio.timeout(patience_s):
                    await self.process.wait()
            except TimeoutError:
                self.reasons.append(f"the run did not end within {patience_s:g} s of {number.name}")
                self.report(self.reasons[-1])
        return self.process.returncode

    async def _buried(self) -> None:
        """Remove what a run that was killed left behind; nothing where it stopped by itself."""
        reaped = await asyncio.to_thread(ending.reap, self.state_dir)
        if reaped.folders or reaped.groups:
            self.report(f"removed what it left: {reaped.processes} processes, {reaped.folders} folders of desktops")

    async def _left(self, mine: set[int]) -> list[str]:
        """What is still there after the stop, once the kernel has had time to bury it."""
        give_up = time.monotonic() + LINGER_S
        while True:
            by_kind = await asyncio.to_thread(things, self.run, self.state_dir)
            names = [name for kind in by_kind.values() for name in kind]
            names += [f"process {pid}" for pid in sorted(mine) if _runs_for(pid, self.run)]
            if not names or time.monotonic() > give_up:
                return names
            await asyncio.sleep(TICK_S)

    def _found(self, load: float, status: int | None, left: list[str]) -> SoakResult:
        first, _, last = windows(self.wanted.minutes)
        returned = returns(self.samples, first, last, self.desktops)
        wrong = audited(self.run / LEDGER)
        log = self.log
        seen = bad(self.broken, returned, log.warnings, left, wrong=wrong, rl_steps=log.rl_steps)
        return SoakResult(
            run=self.run.name, seed=self.wanted.seed, minutes=self.wanted.minutes, load_at_start=load,
            faults=self.broken, not_injected=self.missed, returns=returned, samples=self.samples,
            rl_steps=log.rl_steps,
            episodes=dict(log.counts.most_common()), events=dict(log.warnings.most_common()), audit=wrong,
            left=left, exit=status, reasons=[*self.reasons, *seen],
        )  # fmt: skip


def _runs_for(pid: int, run: Path) -> bool:
    """Whether a process that was the run's still lives: a number may have gone to another process meanwhile."""
    try:
        words = psutil.Process(pid).cmdline()
    except psutil.Error:
        return False
    return any(str(run) in word or mark_of(run) in word for word in words)
