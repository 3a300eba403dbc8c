"""What a virtual machine is made of: its image, its accelerator, its disks and qemu's command line.

Of this host's programs only debugfs parses a guest's file system, without rights and in a sandbox of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from actors.desktop.config import QemuConfig
from actors.desktop.faults import FaultCause, fault
from actors.desktop.providers.sandbox import command
from actors.desktop.providers.sandbox.owners import UserLease
from actors.desktop.providers.sandbox.sandbox import remove_folder
from actors.errors import DesktopFault
from apis.applications import guest_files
from runtime.errors import ConfigError

PROGRAM = "qemu-system-x86_64"
PROGRAMS = (PROGRAM, "qemu-img", "mke2fs", "debugfs", "setpriv", "prlimit", "bwrap")
OWN_MIB = 512  # of a machine's memory qemu's own: translated code, its disks' pages
GUEST_PORT = 2222
MAC = "52:54:00:63:72:6c"
INODES = 19_000  # fewer than the file system has that a copy is put on
TOOL_S = 60.0
TOOL_CPU_S = 10
FILES = 256
HOME, DUMPED = "home.img", "dump"
AGENT, HELPER = "ga", "helper"
# By the image's own kernel without any disk: one that gets so far runs Linux. KVM may be there and run none.
BOOTED = b"Kernel panic - not syncing: VFS"
PROBE_S = 20.0
_BARE = "-nodefaults -no-user-config -display none -machine pc"
_PROCESSOR = {"kvm": "-accel kvm -cpu host", "tcg": "-accel tcg,thread=multi,tb-size=256"}
_KERNEL_LINE = "root=/dev/vda rw quiet panic=-1 net.ifnames=0 mitigations=off"
Accelerator = Literal["kvm", "tcg"]
_REFUSED = ("bwrap:", "prlimit:")


class Image(NamedTuple):
    """A folder with a disk, the kernel that it boots with and that kernel's first file system."""

    folder: Path
    disk: Path
    kernel: Path
    initrd: Path

    def marks(self) -> str:
        """A digest of what a snapshot of it is made from: image, guest code and qemu."""
        digest = hashlib.blake2b(_answer([PROGRAM, "--version"]).encode(), digest_size=6)
        for path in self[1:]:
            seen = path.stat()
            digest.update(f"{path} {seen.st_size} {seen.st_mtime_ns}".encode())
        for name, path in sorted(guest_files().items()):
            digest.update(name.encode() + path.read_bytes())
        return digest.hexdigest()


def image_of(config: QemuConfig) -> Image:
    """The image that the settings name. Raises ConfigError where a part is missing or desktops' users can't read it."""
    folder = Path(config.image_folder).absolute()
    image = Image(folder, folder / "disk.qcow2", folder / "vmlinuz", folder / "initrd")
    for path in image[1:]:
        if not path.is_file():
            raise ConfigError(f"desktops.provider.image: {path} is missing: `make vm-image` makes one")
    closed = [str(place) for place in (image.folder, *image.folder.parents) if not place.stat().st_mode & stat.S_IXOTH]
    if os.geteuid() == 0 and closed:
        raise ConfigError(f"desktops.provider.image: desktops' users can't pass through {closed[-1]}")
    return image


def accelerator(config: QemuConfig, image: Image) -> Accelerator:
    """What machines run on: as the settings say, or KVM where Linux boots with it. Blocks. Raises ConfigError."""
    if config.accelerator == "tcg" or (config.accelerator == "auto" and not os.access("/dev/kvm", os.R_OK | os.W_OK)):
        return "tcg"
    if boots_with("kvm", image.kernel):
        return "kvm"
    if config.accelerator == "kvm":
        raise ConfigError("desktops.provider.accelerator is kvm, and no Linux boots with it here: set it to auto")
    return "tcg"


def boots_with(kind: Accelerator, kernel: Path) -> bool:
    """Whether `kernel` runs until it looks for its disks. Blocks for up to `PROBE_S`."""
    options = "-no-reboot -serial stdio -m 256 -append console=ttyS0\\ panic=-1"
    argv = [PROGRAM, *shlex.split(f"{_BARE} {_PROCESSOR[kind]} {options}"), "-kernel", str(kernel)]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_S, check=False)
    except subprocess.TimeoutExpired as late:
        return BOOTED in (late.stdout or b"")
    except OSError:
        return False
    return BOOTED in done.stdout


def rights(lease: UserLease) -> list[str]:
    """What runs qemu with the rights of the lease's user, and has the kernel end it with the thread that started it."""
    argv = ["setpriv", "--pdeathsig", "KILL"]
    if not lease.shared:
        kvm = os.stat("/dev/kvm").st_gid if os.path.exists("/dev/kvm") else lease.uid
        groups = ["--groups", str(kvm)] if kvm else ["--clear-groups"]
        argv += ["--reuid", str(lease.uid), "--regid", str(lease.uid), *groups]
    return [*argv, "--"]


# A machine that is stored has seen HOME's disk: empty, and larger than any. Another one is put in its place.
_NO_HOME = f"driver=null-co,node-name=home,size={1 << 40},read-zeroes=on"
DEVICES = f"""-device virtio-blk-pci,drive=root -device virtio-blk-pci,drive=home
    -device virtio-rng-pci -device virtio-serial-pci
    -device virtserialport,chardev=agent,name=org.qemu.guest_agent.0
    -device virtserialport,chardev=helper,name={HELPER}
    -netdev user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:0-:{GUEST_PORT}
    -device virtio-net-pci,netdev=net,mac={MAC},romfile="""


def qemu(
    image: Image,
    config: QemuConfig,
    kind: Accelerator,
    disks: tuple[Path, Path],
    *,
    listeners: Sequence[int],
    state_fd: int,
) -> list[str]:
    """The command line of a machine with `disks` as its root and HOME's, which listens at three sockets: QMP's, its
    agent's and its helper's.

    With `state_fd` it goes on from there, and may start no program. Without, it has no HOME yet.
    """
    monitor, agent, helper = listeners
    devices = f"""-chardev socket,id=agent,fd={agent},server=on,wait=off
        -chardev socket,id=helper,fd={helper},server=on,wait=off {DEVICES}
        -chardev socket,id=monitor,fd={monitor},server=on,wait=off -mon chardev=monitor,mode=control"""
    loaded = f"""-incoming fd:{state_fd} -S
        -sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"""
    size = f"-no-reboot -smp {config.cpus} -m {config.memory_mib - OWN_MIB}"
    words = f"{_BARE} {_PROCESSOR[kind]} {size} {devices} {loaded if state_fd >= 0 else ''}".split()
    boot = ["-kernel", str(image.kernel), "-initrd", str(image.initrd), "-append", _KERNEL_LINE]
    root, own = (str(disk).replace(",", ",,") for disk in disks)
    root = f"file={root},format=qcow2,if=none,id=root,cache=unsafe,werror=report,rerror=report"
    own = f"driver=raw,node-name=home,file.driver=file,file.filename={own}" if state_fd >= 0 else _NO_HOME
    return [PROGRAM, *words, *boot, "-drive", root, "-blockdev", own]


def forwarded(said: str) -> int:
    """The port of this host that leads to the guest, in what the monitor says of its networks. Raises DesktopFault."""
    match = re.search(r"TCP\[HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)\s", said)
    if match is None:
        raise fault(FaultCause.BOOT_FAILED, f"qemu forwards no port: {said[-200:]}")
    return int(match[1])


def overlay(below: Path, place: Path, uid: int) -> None:
    """Make an empty disk for `uid`, of which what is not written is read from `below`. Blocks. Raises DesktopFault."""
    _tool(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", str(below), str(place)])
    os.chown(place, uid, -1)


def make_home(disk: Path, uid: int, size_bytes: int) -> None:
    """Make HOME's disk of `disk`/home and of the session's keys in `disk`/run, for a guest that knows `uid` as its own
    user. Blocks. Raises DesktopFault."""
    image = disk / HOME
    image.touch(mode=0o600)
    os.truncate(image, size_bytes)
    os.chown(image, uid, -1)
    options = ("-O", "^has_journal,^resize_inode", "-m", "0", "-N", str(INODES), "-E", "root_owner=0:0")
    argv = ["mke2fs", "-q", "-F", "-t", "ext4", *options, "-d", "/source", "/home.img"]
    source = [("--ro-bind", disk / name, f"/source/{name}") for name in ("home", "run")]
    _tool(_as_guest(argv, [*source, ("--bind", image, "/home.img")]), uid)
    remove_folder(disk / "home")


# Run without rights: debugfs copies files, folders and links. Second names and what is neither come after that. A name
# of a listing has no slash, and each listing begins with its folder's own number.
_COPIED = """
import contextlib, os, re, stat, subprocess
def debugfs(orders):
    done = subprocess.run(["debugfs", "-f", "-", "/home.img"], input=orders.encode(), capture_output=True)
    return re.findall(rb"/(\\d+)/(\\d+)/\\d+/\\d+/([^/]*)/\\d*/", done.stdout)
debugfs("rdump /home /out\\n")
folders = {int(number): b"/out/home" for number, _, name in debugfs("ls -p /\\n") if name == b"home"}
first, added, seen = {}, [], set()
while folders := {number: place for number, place in folders.items() if number not in seen}:
    seen |= folders.keys()
    below, here = {}, b""
    for number, mode, name in debugfs("".join(f"ls -p <{number}>\\n" for number in folders)):
        number, mode = int(number), int(mode, 8)
        if name == b".":
            here = folders[number]
        elif name != b"..":
            path = here + b"/" + name
            if stat.S_ISDIR(mode):
                below[number] = path
            elif not stat.S_ISLNK(mode) and (not stat.S_ISREG(mode) or first.setdefault(number, path) != path):
                added.append((path, first.get(number)))
    folders = below
for path, other in added:
    with contextlib.suppress(OSError):
        folder = os.path.dirname(path)
        mode = stat.S_IMODE(os.stat(folder).st_mode)
        os.chmod(folder, 0o700)
        if other is None:
            os.mkfifo(path)
        else:
            os.unlink(path)
            os.link(other, path)
        os.chmod(folder, mode)
"""


def dump(disk: Path, uid: int) -> Path:
    """A copy of what HOME's disk holds now, as files of `uid`. Blocks. Raises DesktopFault.

    What there is no room for is short there, and a file system that the guest has damaged may give an empty folder.
    """
    place = disk / DUMPED
    if place.exists():
        remove_folder(place)
    place.mkdir(mode=0o700)
    os.chown(place, uid, -1)
    argv = [command.PYTHON, "-I", "-S", "-c", _COPIED]
    binds = [("--ro-bind", disk / HOME, "/home.img"), ("--bind", place, "/out")]
    with contextlib.suppress(_EndedBadly):  # by what it has read
        _tool(_as_guest(argv, binds), uid)
    home = place / "home"
    if not home.is_dir() or home.is_symlink():
        home.unlink(missing_ok=True)
        home.mkdir(mode=0o700)
        os.chown(home, uid, -1)
    return home


class _EndedBadly(DesktopFault):
    pass


def _as_guest(argv: Sequence[str], binds: Sequence[tuple[str, Path, str]]) -> list[str]:
    """What runs a tool without rights, network and files but `binds`, as the user that the guest has."""
    alone = f"""bwrap --unshare-all --unshare-user --uid {command.GUEST_UID} --gid {command.GUEST_UID}
        --die-with-parent --new-session --cap-drop ALL"""
    shown = [word for how, source, place in binds for word in (how, str(source), place)]
    inside = f"--dev /dev --remount-ro / --clearenv --setenv PATH {command.PATH} --"
    limits = [*command.limited(FILES), f"--as={1 << 30}", f"--cpu={TOOL_CPU_S}"]
    return [*limits, *alone.split(), *command.programs(), *shown, *inside.split(), *argv]


def _tool(argv: Sequence[str], uid: int | None = None) -> None:
    line = [*command.as_user(os.geteuid() if uid is None else uid), *argv]
    try:
        process = subprocess.run(
            line, stdin=subprocess.DEVNULL, capture_output=True, env=command.environment(), timeout=TOOL_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise fault(FaultCause.SANDBOX_REFUSED, f"{error}"[:300]) from error
    if process.returncode:
        last = process.stderr.decode("utf-8", "replace").strip()[-200:]
        detail = f"{' '.join(argv[-3:])} ended with {process.returncode}: {last}"
        kind = DesktopFault if last.startswith(_REFUSED) else _EndedBadly
        raise kind(FaultCause.SANDBOX_REFUSED, detail, FaultCause.SANDBOX_REFUSED.culprit)


def _answer(argv: Sequence[str]) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=TOOL_S).stdout
