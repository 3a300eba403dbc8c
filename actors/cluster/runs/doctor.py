"""What a run needs from this machine.

Invariant: checking changes nothing and starts nothing that outlives it. Every failed check names what is missing and
the command that mends it.
"""

from __future__ import annotations

import importlib.metadata
import os
import shlex
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from actors.cluster.config import models
from actors.cluster.config.lanes import lanes_of
from actors.cluster.config.schema import Deploy
from actors.cluster.runs.capacity import Check, check_disk, check_files, check_memory, check_sums
from actors.desktop.config import SandboxConfig
from actors.desktop.files import office
from actors.desktop.providers import home
from actors.desktop.providers.sandbox import cgroups, owners
from actors.desktop.providers.sandbox.command import filter_supported
from actors.desktop.providers.sandbox.owners import lends_users
from actors.desktop.providers.sandbox.provider import nested_namespaces, owner_in
from actors.sampler.config import SglangConfig
from actors.sampler.process import interpreter
from apis.applications import app_named
from apis.tasks.registry import FAMILIES, of_set
from runtime.errors import ConfigError
from runtime.program import check_origin as code_origin

DISTRIBUTION = "computerrl"
CONNECT_S = 3.0
_NAMESPACES = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net"]
_VIEW = ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--die-with-parent"]


def examine(deploy: Deploy, *, place: Path | None = None) -> list[Check]:
    """Every check for a run of `deploy` whose folder lies below `place` (default: the working folder)."""
    return list(_checks(deploy, place or Path.cwd()))


def _checks(deploy: Deploy, place: Path) -> Iterator[Check]:
    yield check_python()
    yield check_origin()
    yield from check_packages()
    if deploy.cluster.engine == "ray":
        yield check_ray()
    if not deploy.desktops.place:
        yield from _desktops(deploy)
        yield from check_judge(deploy)
    yield check_base(deploy)
    yield from map(check_attached, deploy.samplers.attach)
    if not deploy.samplers.attach and not deploy.samplers.place:
        yield from _engines(deploy)
    if not deploy.learner.place:
        yield from check_learner()
    yield check_disk(place)
    yield check_files()
    yield check_memory(deploy)


def examine_part(deploy: Deploy, key: str) -> list[Check]:
    """What a process that `key` of `Deploy.places` places needs of the machine that it is on."""
    seats, own = deploy.desktops, list[Check]()
    if key == "desktops.place":  # those of one process, as if they were asked for here
        seats = msgspec.structs.replace(seats, place={}, count=seats.seats_of(0), processes=1)
        placed = msgspec.structs.replace(deploy, desktops=seats)
        own = [*_desktops(placed), *check_judge(placed)]
    elif key == "samplers.place":
        own = list(_engines(deploy))
    elif key == "learner.place":
        own = list(check_learner())
    return [check_python(), *check_packages(), *own, check_disk(Path.cwd()), check_files()]


def _desktops(deploy: Deploy) -> Iterator[Check]:
    """What desktops need of the machine that they are on."""
    if not isinstance(deploy.desktops.provider, SandboxConfig):
        return
    yield check_root()
    yield check_state(deploy.desktops.provider.folder)
    yield check_debian()
    yield check_program("sshd", "openssh-server", "/usr/sbin/sshd")
    yield check_program("Xvfb", "xvfb", "/usr/bin/Xvfb")
    yield check_sandbox()
    yield check_cgroups()
    apps = apps_of(deploy)
    yield from check_sums(deploy, apps)
    yield check_home()
    yield check_applications()
    yield check_editor(needed="code" in apps)
    yield check_task_files()
    for name, listed in sorted({(app.program, app.packages) for app in map(app_named, apps) if app.packages}):
        yield check_application(name, listed)
    if judged_by_office(deploy):
        yield check_profile()


def _engines(deploy: Deploy) -> Iterator[Check]:
    """What engines need of the machine that they are started on."""
    if deploy.samplers.device == "cuda":
        yield check_gpu()
    if isinstance(deploy.samplers.engine, SglangConfig):
        yield check_sglang(deploy.samplers.engine)


def check_python() -> Check:
    """The interpreter's version."""
    ok = (3, 11) <= sys.version_info[:2] < (3, 13)
    found = ".".join(map(str, sys.version_info[:3]))
    return Check(name="python", ok=ok, found=found, mend="PYTHON=python3.11 make setup")


def check_ray() -> Check:
    """Ray, which is an extra; it is not imported."""
    try:
        return Check(name="ray", ok=True, found=importlib.metadata.version("ray"))
    except importlib.metadata.PackageNotFoundError:
        return Check(name="ray", ok=False, found="cluster.engine is ray, which is not installed", mend="make ray")


def check_sglang(engine: SglangConfig) -> Check:
    """SGLang's own environment; its packages are not imported."""
    try:
        return Check(name="sglang", ok=True, found=str(interpreter(engine.python)))
    except ConfigError as error:
        mend = "make sglang-cpu; on a CUDA machine: python3 -m venv .venv-sglang, and pip install sglang==0.5.23 in it"
        return Check(name="sglang", ok=False, found=str(error), mend=mend)


def check_origin() -> Check:
    """All packages from one place."""
    try:
        origin = code_origin()
        return Check(name="code", ok=True, found=f"{origin.root} build {origin.build}")
    except ConfigError as error:
        mend = "run outside the other project's folder, PYTHONPATH unset"
        return Check(name="code", ok=False, found=str(error), mend=mend)


def check_packages() -> Iterator[Check]:
    """Python packages against the ranges of the installed distribution; torch on a line of its own."""
    from packaging.requirements import Requirement

    try:
        required = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        yield Check(name="packages", ok=False, found=f"{DISTRIBUTION} is not installed", mend="make setup")
        return
    wrong: list[str] = []
    count = 0
    torch = "not installed"
    for line in required:
        need = Requirement(line)
        if need.marker is not None and not need.marker.evaluate({"extra": ""}):
            continue
        count += 1
        try:
            version = importlib.metadata.version(need.name)
        except importlib.metadata.PackageNotFoundError:
            version = None
        good = version is not None and need.specifier.contains(version, prereleases=True)
        if need.name == "torch":
            torch = f"{version or 'not installed'}{'' if good else f', needed {need.specifier}'}"
            mend = f"{sys.executable} -m pip install 'torch{need.specifier}'"
            yield Check(name="torch", ok=good, found=torch, mend=mend)
        elif not good:
            wrong.append(f"{need.name} {version or 'missing'} (needed {need.specifier or 'any'})")
    found = "; ".join(wrong) or f"{count} as required"
    yield Check(name="packages", ok=not wrong, found=found, mend="make setup")


def check_root() -> Check:
    """Root: desktops get users and limits of their own; without it they work, kept apart by namespaces alone."""
    ok = lends_users()
    found = f"uid {os.geteuid()}" if ok else f"uid {os.geteuid()}: desktops share it, their disks have no limit"
    mend = "run as root: each desktop is given a user of its own"
    return Check(name="root", ok=ok, found=found, mend=mend, needed=False)


def check_state(folder: str) -> Check:
    """Where desktops keep their folders: room for sockets, there or to be made by this user, safe from all others."""
    place = Path(folder).absolute()
    near = next(path for path in (place, *place.parents) if path.exists())
    ok = near.is_dir() and os.access(near, os.W_OK | os.X_OK)
    shut = [str(path) for path in (near, *near.parents) if lends_users() and not path.stat().st_mode & stat.S_IXOTH]
    why = owners.unsafe(place)
    if ok and why is not None:
        found, _, mend = why.partition("; ")
        return Check(name="state dir", ok=False, found=found, mend=mend)
    if ok and shut:
        found = f"desktops' users can't pass through {shut[0]}"
        return Check(name="state dir", ok=False, found=found, mend=f"chmod o+x {shlex.join(shut)}")
    key = "in the deploy file desktops.provider: {type: sandbox, state_dir: a short path of yours}"
    try:
        owner_in(folder, "")
    except ConfigError as error:
        return Check(name="state dir", ok=False, found=str(error), mend=key)
    mend = f"install -d -o {os.geteuid()} {folder}   (or {key})"
    return Check(name="state dir", ok=ok, found=folder if ok else f"{near} is not yours to write to", mend=mend)


def packages(folder: str, name: str) -> list[str]:
    """The Debian packages of a list in a folder of `deploy`."""
    text = (resources.files("deploy") / folder / name).read_text(encoding="utf-8")
    return [word for line in text.splitlines() for word in line.partition("#")[0].split()]


def absent(wanted: list[str]) -> list[str]:
    """Those of `wanted` that are not installed; none where there is no dpkg-query to ask."""
    if shutil.which("dpkg-query") is None:
        return []
    listed = _output(["dpkg-query", "-W", "-f=${Package} ${db:Status-Status}\n", *wanted])[1]
    have = {line.split()[0] for line in listed.splitlines() if line.endswith(" installed")}
    return [name for name in wanted if name not in have]


def check_debian() -> Check:
    """Debian packages of the desktops."""
    wanted = packages("guest", "packages.txt")
    if shutil.which("dpkg-query") is None:
        return Check(name="debian", ok=False, found="no dpkg-query: not a Debian system", mend="use Debian 12")
    missing = absent(wanted)
    found = f"missing: {' '.join(missing)}" if missing else f"{len(wanted)} packages installed"
    mend = f"make setup   (or: apt-get install --no-install-recommends {' '.join(missing)})"
    return Check(name="debian", ok=not missing, found=found, mend=mend)


def check_applications() -> Check:
    """Debian packages of the applications, whether or not a task of this file needs them."""
    lists = sorted(
        path.name for path in (resources.files("deploy") / "setup").iterdir() if path.name.endswith("-packages.txt")
    )
    missing = {name.removesuffix("-packages.txt"): absent(packages("setup", name)) for name in lists}
    lacking = [f"{name} ({' '.join(some)})" for name, some in missing.items() if some]
    found = f"missing for {', '.join(lacking)}" if lacking else ", ".join(missing)
    mend = "make setup   (or: apt-get install --no-install-recommends the packages named)"
    return Check(name="applications", ok=not lacking, found=found, mend=mend, needed=False)


def check_task_files() -> Check:
    """Debian packages of programs that only published task files name."""
    wanted = packages("setup", "osworld.txt")
    missing = absent(wanted)
    found = f"missing: {' '.join(missing)}" if missing else ", ".join(wanted)
    return Check(name="task files", ok=not missing, found=found, mend="make osworld-apps", needed=False)


def check_editor(*, needed: bool = False) -> Check:
    """VS Code, which no package of Debian's holds and only tasks of its own suite need."""
    lacking = home.editor_lacking()
    mend = home.editor_mend() + f"   (or let {home.EDITOR_PLACE} name the folder of one that is set up)" * needed
    return Check(name="vs code", ok=not lacking, found=lacking or str(home.editor_place()), mend=mend, needed=needed)


def check_program(name: str, package: str, path: str) -> Check:
    """One program of the desktops."""
    found = path if os.access(path, os.X_OK) else shutil.which(name)
    return Check(
        name=name,
        ok=found is not None,
        found=found or "missing",
        mend=f"apt-get install --no-install-recommends {package}",
    )


def check_attached(url: str) -> Check:
    """Whether anything listens at the URL of a server that is to be attached."""
    parts = urlsplit(url)
    port, found = parts.port or (443 if parts.scheme == "https" else 80), url
    try:
        socket.create_connection((parts.hostname or "", port), CONNECT_S).close()
    except OSError as error:
        found = f"{url} can't be reached: {error.strerror or error}"
    return Check(name="server", ok=found == url, found=found, mend="start that server, or name another")


def check_application(program: str, listed: str) -> Check:
    """An application that tasks need: its program, and all packages of its list."""
    wanted = packages("setup", listed)
    check = check_program(program, " ".join(wanted), f"/usr/bin/{program}")
    if check.ok and (missing := absent(wanted)):
        return msgspec.structs.replace(check, ok=False, found=f"missing: {' '.join(missing)}")
    return check


def judged_by_office(deploy: Deploy) -> bool:
    """Whether some task wants a document, which LibreOffice judges where its desktop's seat is."""
    return any(app.startswith("libreoffice") for app in apps_of(deploy))


def check_judge(deploy: Deploy) -> Iterator[Check]:
    """LibreOffice as the judge of documents, wherever the desktops are; nothing to say where no task wants one."""
    if judged_by_office(deploy):
        ok, lists = office.PROGRAM.is_file(), " ".join(packages("setup", "office-packages.txt"))
        found = str(office.PROGRAM) if ok else "LibreOffice, which judges documents, is missing on this machine"
        yield Check(name="judge", ok=ok, found=found, mend=f"apt-get install --no-install-recommends {lists}")


def check_sandbox() -> Check:
    """Whether bubblewrap may make the namespaces of a desktop."""
    mend = "apt-get install bubblewrap; sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000"
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return Check(name="sandbox", ok=False, found="bwrap is missing", mend=mend)
    command = [bwrap, *_NAMESPACES, *_VIEW, "true"]
    if lends_users() and shutil.which("setpriv"):
        command = ["setpriv", "--reuid=20000", "--regid=20000", "--clear-groups", *command]
    code, output = _output(command)
    nested = "; programs may make user namespaces, which Chromium needs" if nested_namespaces() else ""
    behind = "" if filter_supported() else "; no filter of system calls on this kind of processor"
    good = f"user, pid, ipc, uts and net namespaces{nested}{behind}"
    found = good if code == 0 else (output.strip().splitlines() or ["refused"])[-1]
    return Check(name="sandbox", ok=code == 0, found=found, mend=mend)


def check_cgroups() -> Check:
    """Limits on memory and processes; a run works without them."""
    lacking = cgroups.lacking()
    found = f"desktops have no limit of {' and of '.join(lacking)}" if lacking else "limits of memory and processes"
    mend = "mount -o remount,rw /sys/fs/cgroup; on version 2 this program's own group has to lie below one that holds"
    mend += " no process and may hand down memory and pids, as under systemd-run --scope -p Delegate=yes"
    return Check(name="cgroups", ok=not lacking, found=found, mend=mend, needed=False)


def check_home() -> Check:
    """The template of a desktop's HOME."""
    try:
        files = home.load().files
    except (ConfigError, OSError) as error:
        return Check(name="home", ok=False, found=str(error), mend="install computerrl again")
    return Check(name="home", ok=True, found=f"{len(files)} files that come with the program")


def apps_of(deploy: Deploy) -> set[str]:
    """The applications that tasks of some lane need."""
    lanes = lanes_of(deploy.tasks)
    listed = (*lanes.train, *lanes.eval, *lanes.demo)
    families = {task_id.partition("/")[0] for task_id in listed if not of_set(task_id)}  # a set's were looked at
    return {app for name in families for app in FAMILIES[name].apps}


def _gpus() -> list[str]:
    code, output = _output(["nvidia-smi", "-L"])
    return [line for line in output.splitlines() if line.startswith("GPU ")] if code == 0 else []


def check_gpu() -> Check:
    """A GPU for engines on samplers.device: cuda."""
    found = _gpus()
    return Check(
        name="gpu",
        ok=bool(found),
        found=found[0] if found else "none that nvidia-smi knows of, and samplers.device is cuda",
        mend="use a machine with an NVIDIA GPU and its driver, or --set samplers.device=cpu, or name running servers"
        " with samplers.attach",
    )


def check_learner() -> Iterator[Check]:
    """Whether the learner computes on the GPU that is here; nothing to say where there is none, or no torch."""
    try:
        build = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return
    if gpus := _gpus():
        ok = not build.endswith("+cpu")
        found = f"on {gpus[0]}" if ok else f"torch {build} computes on the CPU, and here is {gpus[0]}"
        mend = f"{sys.executable} -m pip install --force-reinstall torch=={build.partition('+')[0]}, from the default"
        yield Check(name="learner", ok=ok, found=found, mend=f"{mend} index", needed=False)


def check_profile() -> Check:
    """LibreOffice's finished profile; without it every spreadsheet takes seconds longer to open."""
    from actors.desktop.providers.home_template import complete

    profile = home.office_profile()
    ok = profile is not None and complete(profile)
    found = str(profile) if profile else "none: LibreOffice starts as if for the first time on every desktop"
    if profile and not ok:
        found += " is of another version of this program: settings are missing in it"
    mend = f"make setup   (or: {sys.executable} -P -m actors.desktop.providers.home_template)"
    return Check(name="office profile", ok=ok, found=found, mend=mend, needed=False)


def check_base(deploy: Deploy) -> Check:
    """The files of the model that the run starts from."""
    mend = "install computerrl again"
    if deploy.model.path:
        mend = "put the model's folder there, or --set model.path to another, or to OWNER/MODEL of the hub"
    try:
        folder = models.locate(deploy.model.path, weights=False)
    except ConfigError as error:
        return Check(name="base model", ok=False, found=str(error), mend=mend)
    return Check(name="base model", ok=True, found=str(folder), mend=mend)


def _output(command: list[str]) -> tuple[int, str]:
    run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run
    try:
        done = run(command, capture_output=True, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, done.stdout + done.stderr
