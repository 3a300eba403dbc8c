"""Executes the Dockerfile on a bare Debian: every step, in a fresh root that debootstrap makes.

Invariant: no mount and no process is left, however it ends: they have namespaces of their own, which the kernel takes
away. The root's folder is removed when the last process has ended, except after SIGKILL.

It needs root and debootstrap. The Debian mirrors are those of this machine's package lists. PIP_* of the environment
holds in the root, too; a folder that it names has to be bound. Control groups are left out, as in a container.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parents[1]
CODENAMES = {"11": "bullseye", "12": "bookworm", "13": "trixie"}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SOURCE = "/.source"  # in the root: what COPY takes


class DockerStep(NamedTuple):
    """An instruction of a Dockerfile and the rest of its line, with continued lines joined."""

    instruction: str
    text: str


def steps(dockerfile: str, target: str = "") -> list[DockerStep]:
    """What a Dockerfile says for the stage `target` (default: its last), in order, without comments."""
    lines = [line for line in dockerfile.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    stages: dict[str, list[DockerStep]] = {}
    for line in joined.splitlines():
        step = DockerStep(*line.split(maxsplit=1))
        if step.instruction == "FROM":
            base, _, last = step.text.partition(" AS ")
            stages[last] = list(stages.get(base, [DockerStep("FROM", base)]))
        else:
            stages[last].append(step)
    return stages[target or last]


def debian(given: Sequence[DockerStep]) -> str:
    """The code name of the Debian that the Dockerfile begins from. Raises ValueError for another system."""
    found = re.fullmatch(r"debian:(\d+)(-slim)?", given[0].text)
    if given[0].instruction != "FROM" or found is None or found[1] not in CODENAMES:
        raise ValueError(f"{' '.join(given[0])}: expected FROM debian:{' or '.join(CODENAMES)}")
    return CODENAMES[found[1]]


def inside(given: Sequence[DockerStep], environment: dict[str, str]) -> list[str]:
    """The shell lines that execute the steps within the root. Raises ValueError for an unknown instruction."""
    lines, user, program, arguments = [], "root", list[str](), list[str]()
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())

    def run(command: str) -> list[str]:
        home = f"$(getent passwd {user} | cut -d: -f6)"
        identity = f"setpriv --reuid {user} --regid {user} --init-groups"
        said = shlex.quote(f"== {user}: {command}")
        return [f"echo {said}", f"{identity} env -i PATH={PATH} HOME={home} {settings} sh -c {shlex.quote(command)}"]

    for name, text in given[1:]:
        match name:
            case "RUN":
                lines += run(text)
            case "WORKDIR":
                lines += [f"mkdir -p {text}", f"cd {text}"]
            case "COPY" if text == ". .":
                lines.append(f"cp -r {SOURCE}/. .")
            case "USER":
                user = text
            case "ENTRYPOINT":
                program = json.loads(text)
            case "CMD":
                arguments = json.loads(text)
            case "ARG":  # a PIP_* of the environment
                pass
            case _:
                raise ValueError(f"{name} {text}: this instruction is not known here")
    return [*lines, *run(shlex.join(program + arguments))]


def around(root: Path, codename: str, mirrors: Sequence[tuple[str, str]], bound: Sequence[Path]) -> list[str]:
    """The shell lines that make a Debian at `root` and enter it; `mirrors` are addresses with their code names."""
    main = next(address for address, name in mirrors if name == codename)
    sources = "".join(f"deb {address} {name} main\n" for address, name in mirrors)
    lines = [
        f"debootstrap --variant=minbase {codename} {root} {main}",
        f"printf %s {shlex.quote(sources)} > {root}/etc/apt/sources.list",
        f"cp /etc/resolv.conf /etc/hosts {root}/etc/",
        f"mount --bind {root} {root}",
        f"mount -t proc proc {root}/proc",
        f"mount -t sysfs -o ro sysfs {root}/sys",
        f"mount --rbind /dev {root}/dev",
    ]
    for folder in bound:
        lines += [f"mkdir -p {root}{folder}", f"mount --bind -o ro {folder} {root}{folder}"]
    # Not chroot: in one no user may make a user namespace, and desktops do.
    enter = ["mkdir .before", "pivot_root . .before", "umount -l /.before", "rmdir /.before"]
    return [*lines, f"cd {root}", *enter, "cd /"]


def mirrors_of(codename: str) -> list[tuple[str, str]]:
    """The mirrors of `codename` and its updates, of this machine's package lists."""
    form = ["--format", "$(REPO_URI) $(CODENAME)", "Created-By: Packages"]
    listed = subprocess.run(["apt-get", "indextargets", *form], capture_output=True, text=True, check=True).stdout
    found = sorted({(line.split()[0], line.split()[1]) for line in listed.splitlines()})
    return [one for one in found if one[1].removesuffix("-updates").removesuffix("-security") == codename]


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for one root, removed at the end. SIGTERM and SIGHUP end the program as an error does."""
    for one in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="fresh-root-", dir="/var/tmp") as folder:
        root = Path(folder, "root")
        root.mkdir(mode=0o755)  # users pass through
        yield root


def execute(lines: Sequence[str]) -> int:
    """Run shell lines in namespaces of their own until one fails, and print what they print; the exit status."""
    begun = time.monotonic()
    command = ["setpriv", "--pdeathsig", "KILL"]  # all end with this program, after its SIGKILL, too
    command += ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-euc", "\n".join(lines)]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                print(f"{time.monotonic() - begun:6.0f} s  {line}", end="", flush=True)  # noqa: T201 - a program
        finally:
            process.kill()
            for _ in process.stdout:  # its end is that of the last process
                pass
    return process.returncode


def copied(root: Path) -> None:
    """Lay the files that git knows or would take at SOURCE."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=PROJECT, capture_output=True, check=True).stdout.split(b"\0")
    there = b"\0".join(name for name in names if name and os.path.exists(os.path.join(os.fsencode(PROJECT), name)))
    target = root / SOURCE.lstrip("/")
    target.mkdir()
    subprocess.run(["xargs", "-0", "cp", "--parents", "-t", str(target)], cwd=PROJECT, input=there, check=True)


def main() -> int:
    """Execute it all; 0 when every step ended well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bind", action="append", default=[], type=Path, metavar="FOLDER", help="show it in the root")
    args = parser.parse_args()
    given = steps((PROJECT / "Dockerfile").read_text("utf-8"))
    codename = debian(given)
    mirrors = mirrors_of(codename)
    if codename not in {name for _, name in mirrors}:
        parser.error(f"this machine's package lists name no mirror of {codename}")
    settings = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    with scratch() as root:
        copied(root)
        return execute([*around(root, codename, mirrors, args.bind), *inside(given, settings)])


if __name__ == "__main__":
    sys.exit(main())
