"""What a run needs of this machine.

Checking changes nothing and starts nothing that outlives it. Every failed check names what is missing and the command
that mends it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import resource
import shlex
import shutil
import socket
import stat
import sys
from collections.abc import Collection, Iterator
from importlib import resources
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import psutil

from actors.cluster import output
from actors.cluster import paths as places
from actors.cluster.config import deploy_files, models
from actors.cluster.config.lanes import Lanes, lanes_of
from actors.cluster.config.schema import Deploy, SeatsConfig
from actors.cluster.runs import compose, versions
from actors.cluster.runs.versions import Check, answer
from actors.desktop.config import ContainerConfig, QemuConfig, SandboxConfig, SshConfig
from actors.desktop.files import office
from actors.desktop.provider import has_root
from actors.desktop.providers import home
from actors.desktop.providers.qemu.machine import PROGRAM, accelerator, image_of
from actors.desktop.providers.sandbox import cgroups, owners
from actors.desktop.providers.sandbox.command import filter_program
from actors.desktop.providers.sandbox.owners import lends_users
from actors.desktop.providers.sandbox.provider import nested_namespaces, owner_in
from actors.desktop.providers.ssh import office_releases
from actors.sampler.config import SglangConfig
from actors.sampler.engine import interpreter
from apis.applications import app_named
from apis.tasks.osworld import dump
from apis.tasks.registry import FAMILIES, of_set, task
from apis.tasksets import published
from apis.tasksets.commands import PASSWORD
from runtime.errors import ConfigError
from runtime.program import check_origin
from runtime.system import run

DISTRIBUTION = "computerrl"
APT = "apt-get install --no-install-recommends"
CONNECT_S = 3.0
NEEDED_GB = 3.0
NEEDED_FILES = 4096  # descriptors: about 12 per desktop, and the transports
# MiB that a desktop takes at the most with an application, as `deploy/results/desktops.md` measured it.
APP_MIB = {
    "code": 504, "google_chrome": 232, "libreoffice_calc": 150, "libreoffice_impress": 150, "libreoffice_writer": 150,
}  # fmt: skip
LIGHT_MIB = 64
BY_ROOT = "root"  # among applications: what a task needs that becomes root
# What the kernel has for the whole machine, and lets its owner raise.
RAISED = {"open files": "fs.file-max", "terminals": "kernel.pty.max"}
_NAMESPACES = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net"]
_VIEW = ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--die-with-parent"]


class RunNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is to have on this machine."""

    deploy: Deploy
    apps: Collection[str] = ()  # of its tasks
    place: Path = Path()  # where its folder goes


def command(args: argparse.Namespace) -> int:
    """`computerrl doctor`: 0 when nothing that a run needs is missing, else 1."""
    deploy, _ = deploy_files.load(args.file, args.overrides)
    needs = needs_of(deploy)
    checks = [*examine(needs), *check_offices(needs)]
    healthy = not any(check.fatal for check in checks)
    if args.json:
        output.document({"ok": healthy, "checks": checks})
        return 0 if healthy else 1
    words = {(True, True): "ok", (True, False): "ok", (False, True): "MISSING", (False, False): "warning"}
    rows = [(check.name, words[check.ok, check.needed], check.found) for check in checks]
    output.table(("CHECK", "", "FOUND"), rows)
    for check in checks:
        if not check.ok and check.mend:
            output.line(f"\n{check.name}: {check.mend}")
    output.line("\nready" if healthy else "\nnot ready: the commands above mend it")
    return 0 if healthy else 1


def needs_of(deploy: Deploy) -> RunNeeds:
    """What a run of `deploy` needs, whatever its model is. Raises ConfigError for bad tasks."""
    return RunNeeds(deploy=deploy, apps=apps_of(lanes_of(deploy.tasks)))


def examine(need: RunNeeds) -> list[Check]:
    """Every check for a run. Of what is placed on other machines nothing is asked here."""
    return [check for of_part in CHECKS for check in of_part(need)]


def check_ray(need: RunNeeds) -> Iterator[Check]:
    """Ray, where it places the run's processes."""
    if need.deploy.cluster.engine == "ray":
        version = installed("ray")
        yield Check("ray", version is not None, version or "cluster.engine is ray: not installed", "make ray")


def check_memory(need: RunNeeds) -> Iterator[Check]:
    """What a run may take in all."""
    count, published_bytes = need.deploy.desktops.count, published.MOST_BYTES
    need_gb = 2.0 + 0.15 * count + need.deploy.evaluation.published_metrics * published_bytes / 1e9
    have_gb = psutil.virtual_memory().available / 1e9
    memory = f"{have_gb:.1f} GB available, about {need_gb:.1f} GB needed"
    yield Check("memory", have_gb >= need_gb, memory, "--set desktops.count=2", needed=False)


def check_program(_: RunNeeds) -> Iterator[Check]:
    """The interpreter, all packages from one place, and their versions; torch on a line of its own."""
    from packaging.requirements import Requirement

    version = ".".join(map(str, sys.version_info[:3]))
    yield Check("python", (3, 11) <= sys.version_info[:2] < (3, 13), version, "PYTHON=python3.11 make setup")
    try:
        origin = check_origin()
        yield Check("code", True, f"{origin.root} build {origin.build}")
    except ConfigError as error:
        yield Check("code", False, str(error), "run outside the other project's folder, PYTHONPATH unset")
    try:
        required = [Requirement(line) for line in importlib.metadata.requires(DISTRIBUTION) or []]
    except importlib.metadata.PackageNotFoundError:
        yield Check("packages", False, f"{DISTRIBUTION} is not installed", "make setup")
        return
    needs = [need for need in required if need.marker is None or need.marker.evaluate({"extra": ""})]
    wrong: list[str] = []
    for need in needs:
        there = installed(need.name)
        good = there is not None and need.specifier.contains(there, prereleases=True)
        if need.name == "torch":
            line = f"{there or 'not installed'}{'' if good else f', needed {need.specifier}'}"
            yield Check("torch", good, line, f"{sys.executable} -m pip install 'torch{need.specifier}'")
        elif not good:
            wrong.append(f"{need.name} {there or 'missing'} (needed {need.specifier or 'any'})")
    yield Check("packages", not wrong, "; ".join(wrong) or f"{len(needs)} as required", "make setup")


def installed(name: str) -> str | None:
    """The version of a distribution here."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_engines(need: RunNeeds) -> Iterator[Check]:
    """What engines need of the machine that they are started on; SGLang's own packages are not imported."""
    deploy = need.deploy
    if deploy.samplers.attach or deploy.samplers.place:
        return
    if deploy.samplers.device == "cuda":
        line = next(iter(_gpus()), "none that nvidia-smi knows of, and samplers.device is cuda")
        mend = "use a machine with an NVIDIA GPU and its driver, or --set samplers.device=cpu, or name running servers"
        yield Check("gpu", line.startswith("GPU "), line, f"{mend} with samplers.attach")
    if isinstance(deploy.samplers.engine, SglangConfig):
        try:
            yield Check("sglang", True, str(interpreter(deploy.samplers.engine.python)))
        except ConfigError as error:
            yield Check("sglang", False, str(error), "make sglang-cpu, or on a CUDA machine make sglang-gpu")
    if deploy.samplers.device == "cuda":
        yield from versions.examine(deploy)


def check_learner(need: RunNeeds) -> Iterator[Check]:
    """Whether the learner computes on the GPU that is here; nothing to say where there is none, or no torch."""
    build, gpus = installed("torch"), _gpus()
    if need.deploy.learner.place or not build or not gpus:
        return
    ok = not build.endswith("+cpu")
    line = f"on {gpus[0]}" if ok else f"torch {build} computes on the CPU, and here is {gpus[0]}"
    mend = f"{sys.executable} -m pip install --force-reinstall torch=={build.partition('+')[0]}, from the default index"
    yield Check("learner", ok, line, mend, needed=False)


def _gpus() -> list[str]:
    ok, listed = answer(["nvidia-smi", "-L"])
    return [line for line in listed.splitlines() if ok and line.startswith("GPU ")]


def check_desktops(need: RunNeeds) -> Iterator[Check]:
    """What desktops need of the machine that they are on, and what judges their documents."""
    desktops, apps = need.deploy.desktops, {*need.apps} - {BY_ROOT}
    if desktops.place:
        return
    documents = any(app.startswith("libreoffice") for app in apps)
    if isinstance(desktops.provider, SandboxConfig):
        yield from (check_root(), check_state(desktops.provider.folder), check_sandbox(), check_cgroups())
        yield from (*check_sums(desktops, apps), *check_packages(apps), check_editor(needed="code" in apps))
        yield from [check_profile()] * documents
    if isinstance(desktops.provider, ContainerConfig):
        yield check_containers(desktops.provider)
    if isinstance(desktops.provider, QemuConfig):
        yield check_machines(desktops.provider)
    if BY_ROOT in need.apps:
        mend = "desktops.provider of type qemu with client_password, or of type ssh with machines that have one"
        ok, kind = has_root(desktops.provider), desktops.provider.__struct_config__.tag
        line = f"a task becomes root by a password, and desktops of {kind} have {'one' if ok else 'none'}"
        yield Check("root", ok, line, mend)
    if documents:  # LibreOffice judges them where their desktop's seat is, wherever the desktops are
        ok, lists = office.PROGRAM.is_file(), " ".join(packages("setup", "office-packages.txt"))
        line = str(office.PROGRAM) if ok else "LibreOffice, which judges documents, is missing on this machine"
        yield Check("judge", ok, line, f"{APT} {lists}")


def check_containers(config: ContainerConfig) -> Check:
    """The program that runs containers: it is there, and answers."""
    ok, said = answer([config.program, "version", "--format", "{{.Client.Version}}"])
    line = f"{config.program} {said}" if ok else f"{config.program} is missing or does not answer"
    return Check("containers", ok, line, "make containers")


def check_machines(config: QemuConfig) -> Check:
    """qemu, an image, and what a machine runs on: a Linux that boots with KVM decides."""
    if shutil.which(PROGRAM) is None:
        return Check("machines", False, f"{PROGRAM} is missing", "make vm-image")
    try:
        image = image_of(config)
        kind = accelerator(config, image)
    except ConfigError as error:
        return Check("machines", False, str(error), "make vm-image")
    slow = ": no Linux boots with KVM here, so each instruction is translated, many times slower" * (kind != "kvm")
    return Check("machines", True, f"{image.folder}, by {kind}{slow}", "")


def check_root() -> Check:
    """Root: desktops get users and limits of their own; without it they work, kept apart by namespaces alone."""
    ok = lends_users()
    line = f"uid {os.geteuid()}" if ok else f"uid {os.geteuid()}: desktops share it, their disks have no limit"
    return Check("root", ok, line, "run as root: each desktop is given a user of its own", needed=False)


def check_state(folder: str) -> Check:
    """Where desktops keep their folders: room for sockets, there or to be made by this user, safe from all others."""
    place, name = Path(folder).absolute(), "state dir"
    near = next(path for path in (place, *place.parents) if path.exists())
    ok = near.is_dir() and os.access(near, os.W_OK | os.X_OK)
    shut = [str(path) for path in (near, *near.parents) if lends_users() and not path.stat().st_mode & stat.S_IXOTH]
    if ok and (why := owners.unsafe(place)) is not None:
        line, _, mend = why.partition("; ")
        return Check(name, False, line, mend)
    if ok and shut:
        return Check(name, False, f"desktops' users can't pass through {shut[0]}", f"chmod o+x {shlex.join(shut)}")
    key = "in the deploy file desktops.provider: {type: sandbox, state_dir: a short path of yours}"
    try:
        owner_in(folder, "")
    except ConfigError as error:
        return Check(name, False, str(error), key)
    mend = f"install -d -o {os.geteuid()} {folder}   (or {key})"
    return Check(name, ok, folder if ok else f"{near} is not yours to write to", mend)


def packages(folder: str, name: str) -> list[str]:
    """The Debian packages of a list in a folder of `deploy`."""
    text = (resources.files("deploy") / folder / name).read_text(encoding="utf-8")
    return [word for line in text.splitlines() for word in line.partition("#")[0].split()]


def absent(wanted: list[str]) -> list[str]:
    """Those of `wanted` that are not installed; none where there is no dpkg-query to ask."""
    if shutil.which("dpkg-query") is None:
        return []
    listed = answer(["dpkg-query", "-W", "-f=${Package} ${db:Status-Status}\n", *wanted])[1]
    have = {line.split()[0] for line in listed.splitlines() if line.endswith(" installed")}
    return [name for name in wanted if name not in have]


def check_packages(apps: Collection[str]) -> Iterator[Check]:
    """Debian packages of desktops and of applications; only those that tasks' `apps` need are needed."""
    names, setup = packages("guest", "packages.txt"), resources.files("deploy") / "setup"
    missing = " ".join(absent(names))
    if shutil.which("dpkg-query") is None:
        yield Check("debian", False, "no dpkg-query: not a Debian system", "use Debian 12")
    else:
        line = f"missing: {missing}" if missing else f"{len(names)} packages installed"
        yield Check("debian", not missing, line, f"make setup   (or: {APT} {missing})")
    lists = sorted(path.name for path in setup.iterdir() if path.name.endswith("-packages.txt"))
    lacking = {name.removesuffix("-packages.txt"): absent(packages("setup", name)) for name in lists}
    some = ", ".join(f"{name} ({' '.join(gone)})" for name, gone in lacking.items() if gone)
    line, mend = f"missing for {some}" if some else ", ".join(lacking), f"make setup   (or: {APT} the packages named)"
    yield Check("applications", not some, line, mend, needed=False)
    names = packages("setup", "osworld.txt")  # that only published task files name
    missing = " ".join(absent(names))
    line = f"missing: {missing}" if missing else ", ".join(names)
    yield Check("task files", not missing, line, "make osworld-apps", needed=False)
    for program, listed in sorted({(app.program, app.packages) for app in map(app_named, apps) if app.packages}):
        names, usual = packages("setup", listed), f"/usr/bin/{program}"
        at, missing = usual if os.access(usual, os.X_OK) else shutil.which(program), " ".join(absent(names))
        line = f"missing: {missing}" if at and missing else at or "missing"
        yield Check(program, bool(at and not missing), line, f"{APT} {' '.join(names)}")


def check_editor(*, needed: bool = False) -> Check:
    """VS Code, which no package of Debian's holds and only tasks of its own suite need."""
    lacking = home.editor_lacking()
    mend = home.editor_mend() + f"   (or let {home.EDITOR_PLACE} name the folder of one that is set up)" * needed
    return Check("vs code", not lacking, lacking or str(home.editor_place()), mend, needed=needed)


def check_sandbox() -> Check:
    """Whether bubblewrap may make the namespaces of a desktop."""
    mend = "apt-get install bubblewrap; sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000"
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return Check("sandbox", False, "bwrap is missing", mend)
    words = [bwrap, *_NAMESPACES, *_VIEW, "true"]
    if lends_users() and shutil.which("setpriv"):
        words = ["setpriv", "--reuid=20000", "--regid=20000", "--clear-groups", *words]
    ok, printed = answer(words)
    if not ok:  # one try fails where mounts of a desktop that ends go while they are copied
        ok, printed = answer(words)
    nested = "; programs may make user namespaces, which Chromium needs" if nested_namespaces() else ""
    behind = "" if filter_program(user_namespaces=False) else "; no filter of system calls: libseccomp is missing"
    good = f"user, pid, ipc, uts and net namespaces{nested}{behind}"
    return Check("sandbox", ok, good if ok else (printed.strip().splitlines() or ["refused"])[-1], mend)


def check_cgroups() -> Check:
    """Limits on memory and processes; a run works without them."""
    lacking = cgroups.lacking()
    line = f"desktops have no limit of {' and of '.join(lacking)}" if lacking else "limits of memory and processes"
    mend = "mount -o remount,rw /sys/fs/cgroup; on version 2 this program's own group has to lie below one that holds"
    mend += " no process and may hand down memory and pids, as under systemd-run --scope -p Delegate=yes"
    return Check("cgroups", not lacking, line, mend, needed=False)


def check_profile() -> Check:
    """LibreOffice's finished profile; without it every spreadsheet takes seconds longer to open."""
    from actors.desktop.providers.home_template import complete

    profile = home.office_profile()
    ok = profile is not None and complete(profile)
    line = str(profile) if profile else "none: LibreOffice starts as if for the first time on every desktop"
    if profile and not ok:
        line += " is of another version of this program: settings are missing in it"
    mend = f"make setup   (or: {sys.executable} -P -m actors.desktop.providers.home_template)"
    return Check("office profile", ok, line, mend, needed=False)


def apps_of(lanes: Lanes) -> set[str]:
    """The applications that tasks of some lane need, and `BY_ROOT` where one becomes root by its user's password."""
    listed = (*lanes.train, *lanes.eval, *lanes.demo)
    families = {task_id.partition("/")[0] for task_id in listed if not of_set(task_id)}  # a set's were looked at
    root = {BY_ROOT for task_id in listed if of_set(task_id) and PASSWORD in dump(task(task_id)).decode()}
    return {app for name in families for app in FAMILIES[name].apps} | root


def check_sums(desktops: SeatsConfig, apps: Collection[str]) -> Iterator[Check]:
    """What all desktops of the file may take together, with their tasks' `apps`, next to what the machine has."""
    try:
        sums = compose.sums_of(desktops)
    except ConfigError as error:
        yield Check("desktops", False, str(error), "--set desktops.count=N, or a larger machine")
        return
    held = cgroups.held()
    for one, taken in zip(sums, (held.memory_bytes >> 20, held.processes, 0, 0), strict=True):
        line = one.line + (f"; desktops that are there now hold {taken}" if taken else "")
        mend = f"sysctl -w {RAISED[one.name]}={2 * one.total}" if one.name in RAISED else "wait for other runs to end"
        mend += ", or --set desktops.count to fewer"
        yield Check(f"all {one.name}", one.total + taken <= one.room, line, mend, needed=False)
    if sums:  # whether the memory of one desktop is enough for the largest application of its tasks
        name, memory = max(sorted(apps), key=lambda app: APP_MIB.get(app, LIGHT_MIB), default=""), sums[0]
        least = APP_MIB.get(name, LIGHT_MIB)
        line = f"{memory.each} MiB for each of {memory.desktops}, {least} needed{f' by {name}' if name else ''}"
        most = memory.room // least
        busy, pool = (most - desktops.ready, "") if desktops.ready < most else (most, " --set desktops.warm_pool=0")
        mend = f"a machine with more memory, or --set desktops.count={busy}{pool}"
        yield Check("desktop memory", memory.each >= min(least, memory.asked), line, mend)


def check_offices(need: RunNeeds) -> Iterator[Check]:
    """SSH machines whose LibreOffice is of another release than the one here that judges what they save.

    They are asked by an event loop of its own, so this is not for a coroutine.
    """
    provider = need.deploy.desktops.provider
    if not isinstance(provider, SshConfig) or need.deploy.desktops.place or not office.PROGRAM.is_file():
        return
    if not any(app.startswith("libreoffice") for app in need.apps):
        return
    here, there = office.release(), run(office_releases(provider))
    judged = f"here {here} judges: what is saved there does not pass"
    for machine, release in there.items():
        if release != here:
            line = f"its LibreOffice is {release or 'not known'}, {judged}"
            yield Check(f"judge of {machine}", False, line, "install the same release on both", needed=False)


def check_attached(need: RunNeeds) -> Iterator[Check]:
    """Whether anything listens at the URLs of servers that are to be attached."""
    for url in need.deploy.samplers.attach:
        parts = urlsplit(url)
        port, line = parts.port or (443 if parts.scheme == "https" else 80), url
        try:
            socket.create_connection((parts.hostname or "", port), CONNECT_S).close()
        except OSError as error:
            line = f"{url} can't be reached: {error.strerror or error}"
        yield Check("server", line == url, line, "start that server, or name another")


def check_base(need: RunNeeds) -> Iterator[Check]:
    """The files of the model that the run starts from."""
    mend, path = "install computerrl again", need.deploy.model.path
    if path:
        mend = "put the model's folder there, or --set model.path to another, or to OWNER/MODEL of the hub"
    try:
        yield Check("base model", True, str(models.locate(path, weights=False)))
    except ConfigError as error:
        yield Check("base model", False, str(error), mend)


def check_files(need: RunNeeds) -> Iterator[Check]:
    """Free space where the run folder goes, and how many files may be open."""
    place = need.place
    try:
        near = places.nearest_there(place)
        free = shutil.disk_usage(near).free / 1e9
        yield Check("disk", free >= NEEDED_GB, f"{free:.0f} GB free at {near}", "use --runs on a larger disk")
    except OSError as error:
        yield Check("disk", False, f"{place}: {error.strerror}", "use --runs on another folder")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # to which `run` raises its soft limit
    ok = hard == resource.RLIM_INFINITY or hard >= NEEDED_FILES
    line = "no limit" if hard == resource.RLIM_INFINITY else f"{hard} at most"
    yield Check("open files", ok, line, f"ulimit -n {NEEDED_FILES}")


CHECKS = (
    check_program, check_ray, check_desktops, check_base, check_attached, check_engines, check_learner, check_files,
    check_memory,
)  # fmt: skip
