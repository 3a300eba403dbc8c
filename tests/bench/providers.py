"""`make bench NAME=providers`: boots and steps of containers and virtual machines next to the sandbox's, in one run.

Providers take turns, so that what else runs on this machine slows all of them alike. A step is a click, typed letters,
settling and an observation; its cost is the processors' time in the desktop's control group.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections import defaultdict
from pathlib import Path

import msgspec

from actors.cluster import output
from actors.desktop.config import ContainerConfig, ProviderConfig, QemuConfig, SandboxConfig
from actors.desktop.link import GuestLink
from actors.desktop.pool.pool import open_provider
from actors.desktop.provider import DesktopSpec, Provider
from actors.desktop.providers.qemu.machine import PROGRAM
from tests.bench.report import Measured, Target, median, show

READY_S = 300.0
CALL_S = 120.0
BOOT_MOST, STEP_MOST, STORED_MOST = 3.0, 1.2, 0.1  # of the sandbox's boot and step, and of a machine's first boot


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure."""

    boots: int = 5
    steps: int = 20
    machines: bool = True


class ProvidersResult(Measured, frozen=True, kw_only=True):
    """Seconds by provider: boots until a connection is answered, until the agent is ready; processors' of a step."""

    boot_s: dict[str, list[float]]
    ready_s: dict[str, list[float]]
    step_cpu_s: dict[str, list[float]]
    first_boot_s: float | None  # of a virtual machine that was not stored yet


async def _steps(provider: Provider, spec: DesktopSpec, steps: int) -> tuple[float, float, float]:
    """Seconds of one boot, until its agent is ready, and the processors' of a step."""
    began = time.monotonic()
    desktop = await provider.boot(spec)
    boot_s = time.monotonic() - began
    link = await GuestLink.open(desktop, timeout_s=READY_S)
    ready_s = time.monotonic() - began
    try:
        await link.call("write_file", path="plum.txt", data=b"", timeout_s=CALL_S)
        argv = ["mousepad", "plum.txt"]
        await link.call("open_window", argv=argv, timeout_ms=int(CALL_S * 1000), timeout_s=CALL_S + 10)
        before = (await provider.probe(desktop)).cpu_s
        for at in range(steps):
            await link.call("click", x=400 + at % 2 * 40, y=300, timeout_s=CALL_S)
            await link.call("type_text", text="plum ", timeout_s=CALL_S)
            await link.call("settle", timeout_s=CALL_S)
            await link.call("observe", timeout_s=CALL_S)
        step_s = ((await provider.probe(desktop)).cpu_s - before) / max(1, steps)
    finally:
        await link.close()
        await provider.destroy(desktop)
    return boot_s, ready_s, step_s


def _configs(options: Options) -> tuple[dict[str, ProviderConfig], dict[str, str]]:
    """What can be measured here, and why the others can't."""
    configs: dict[str, ProviderConfig] = {"sandbox": SandboxConfig()}
    left_out = {}
    if shutil.which("podman"):
        configs["container"] = ContainerConfig(runtime="runc" if shutil.which("runc") else "")
    else:
        left_out["container"] = "make containers installs podman"
    if not shutil.which(PROGRAM) or not Path(QemuConfig().image_folder, "disk.qcow2").exists():
        left_out["qemu"] = "make vm-image makes an image"
    elif options.machines:
        configs["qemu"] = QemuConfig()
    return configs, left_out


async def measure(options: Options) -> ProvidersResult:
    """Boot and play on all in turns."""
    configs, left_out = _configs(options)
    load, first_s = os.getloadavg()[0], None
    boots: dict[str, list[float]] = defaultdict(list)
    ready: dict[str, list[float]] = defaultdict(list)
    steps: dict[str, list[float]] = defaultdict(list)
    providers: dict[str, Provider] = {}
    try:
        for name, config in configs.items():
            if isinstance(config, QemuConfig):
                shutil.rmtree(Path(config.image_folder, "ready"), ignore_errors=True)
            began = time.monotonic()
            providers[name] = await open_provider(config, f"bench-{name}")
            if name == "qemu":
                first_s = time.monotonic() - began
        for _ in range(options.boots):
            for name, provider in providers.items():
                spec = DesktopSpec() if name == "qemu" else DesktopSpec(memory_bytes=600 << 20)
                boot_s, ready_s, step_s = await _steps(provider, spec, options.steps)
                boots[name].append(boot_s)
                ready[name].append(ready_s)
                steps[name].append(step_s)
                output.line(
                    f"  {name}: boot {boot_s:.2f} s, ready {ready_s:.2f} s, step {step_s:.3f} s of processors",
                    to=sys.stderr,
                )
    finally:
        for provider in providers.values():
            await provider.close()
    targets = []
    if "container" in boots:
        for what, of, most in (("boot", ready, BOOT_MOST), ("step", steps, STEP_MOST)):
            there, here = median(of["container"]), median(of["sandbox"])
            ratio = there / here if there and here else None
            targets.append(Target(name=f"container: {what}", measured=ratio, bound=most, unit="of the sandbox's"))
    if first_s is not None:
        stored = median(boots["qemu"])
        ratio = stored / first_s if stored else None
        targets.append(Target(name="qemu: boot", measured=ratio, bound=STORED_MOST, unit="of its first"))
    return ProvidersResult(
        load_at_start=load,
        left_out=left_out,
        targets=targets,
        boot_s=boots,
        ready_s=ready,
        step_cpu_s=steps,
        first_boot_s=first_s,
    )


def run(options: Options) -> int:
    """Measure and print."""
    return show(asyncio.run(measure(options)))
