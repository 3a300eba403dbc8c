"""Desktops as containers of podman or docker on this machine.

HOME lies on this host and is read there, as a sandbox's is. A container ends with its owner: its session ends when no
process has the pipe `go` open for writing, and the guest can't open it so.

Whatever is not said here is the sandbox's: folders, users, starting, control groups, freezing, reading, removal. The
container program makes the namespaces and starts the session.
"""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from actors.desktop import provider as abc
from actors.desktop.config import ContainerConfig, SandboxConfig
from actors.desktop.providers import home
from actors.desktop.providers.sandbox import command, owners
from actors.desktop.providers.sandbox.provider import SandboxProvider
from actors.desktop.providers.sandbox.sandbox import Sandbox
from apis.guest.code import start as code_start
from runtime.errors import ConfigError

LABEL = "computerrl"
HOST_IMAGE = "localhost/computerrl-host:1"  # empty folders, over which this machine's programs are shown
COMMAND_S = 60.0
TRIES = 2  # to remove a container
_LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}


class ContainerProvider(SandboxProvider):
    """Makes containers; one per actor process."""

    KIND: ClassVar[str] = "container"
    NEEDS: ClassVar[tuple[str, ...]] = ("prlimit", "bwrap")  # which commands that judge run in

    _config: ContainerConfig

    def __init__(self, config: SandboxConfig, owner: owners.SandboxOwner) -> None:
        super().__init__(config, owner)
        self.NEEDS = (self._config.program, *type(self).NEEDS)  # type: ignore[misc]

    def _lay_out(self) -> None:
        super()._lay_out()
        etc = self._folder / "etc"
        document = command.filter_document(user_namespaces=self._user_namespaces)
        (etc / "seccomp.json").write_bytes(msgspec.json.encode(document))
        (etc / "local" / "bin").mkdir(parents=True)
        (etc / "code").rename(etc / "local" / "bin" / "code")
        subprocess.run(["chmod", "-R", "a+rX", str(etc)], check=True)  # whatever the umask is
        if os.geteuid() != 0:
            raise ConfigError("desktops.provider.type container: needs root; sandbox does without")
        self._remove_left()
        image = self._config.image or HOST_IMAGE
        if not self._answer("image", "inspect", image)[0]:
            if self._config.image:
                raise ConfigError(f"desktops.provider.image {image!r}: {self._config.program} has no such image here")
            made, said = self._answer("import", "-", image, given=_empty_root())
            if not made:
                raise ConfigError(f"desktops.provider.program {self._config.program}: no image was made: {said}")

    def _program(self, *words: str) -> list[str]:
        """The program's command line; podman takes the runtime before the verb, docker after `run`."""
        program, runtime = self._config.program, self._config.runtime
        named = ("--runtime", runtime) if runtime else ()
        if program == "podman":
            # Without systemd, as in a container, podman's own choice fails.
            return [program, "--cgroup-manager", "cgroupfs", *named, *words]
        return [program, words[0], *(named if words[0] == "run" else ()), *words[1:]]

    def _answer(self, *words: str, given: bytes = b"") -> tuple[bool, str]:
        """Whether the program did it, and the last line that it wrote. Blocks. Raises OSError."""
        try:
            line = self._program(*words)
            done = subprocess.run(line, input=given, capture_output=True, check=False, timeout=COMMAND_S)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"{self._config.program} {words[0]} took over {COMMAND_S:g} s") from error
        output = done.stdout if done.returncode == 0 else done.stderr
        return done.returncode == 0, output.decode("utf-8", "replace").strip()[-2000:]

    def _remove_left(self) -> None:
        """What the program still lists of desktops whose owner is dead."""
        listed, names = self._answer("ps", "--all", "--filter", f"label={LABEL}", "--format", "{{.Names}}")
        if not listed:
            raise ConfigError(f"desktops.provider.program {self._config.program} does not answer: {names[-300:]}")
        for name in names.split():
            owner = owners.owner_of(name)
            if owner is not None and owner.dead(self._folder.parent):
                self._remove(name)

    def _remove(self, name: str) -> None:
        """Have the program forget a container. Blocks. Raises OSError where it does not."""
        # Where its monitor was killed, podman's first try finds out that the container has ended, and fails.
        tries = [self._answer("rm", "--force", name) for _ in range(TRIES)]
        if self._answer("container", "inspect", name)[0]:
            raise OSError(errno.EBUSY, f"{self._config.program} keeps {name}: {tries[-1][1][-200:]}")

    def _started(self, sandbox: Sandbox, spec: abc.DesktopSpec, door: Path, **more: Any) -> subprocess.Popen[bytes]:
        for name, accounts in (("passwd", command.PASSWD), ("group", command.GROUP)):
            # With the number that the guest's user has on this host: no user namespace maps it.
            text = accounts.replace(f":{command.GUEST_UID}:", f":{sandbox.lease.uid}:")
            (sandbox.folder / name).write_text(text)
            (sandbox.folder / name).chmod(0o644)  # whatever the umask is
        return command.started(self._program(*self._run(sandbox, spec, door)), os.geteuid(), **more)

    def _run(self, sandbox: Sandbox, spec: abc.DesktopSpec, door: Path) -> list[str]:
        """The words of `run`."""
        etc = self._folder / "etc"
        binds = [
            (sandbox.disk / "home", command.GUEST_HOME, ""),
            (sandbox.disk / "tmp", "/tmp", ""),  # noqa: S108 - its own
            (sandbox.disk / "run", command.GUEST_RUN, ""),
            (door, command.DOOR, ""),
            (self._folder / "guest", command.GUEST_CODE, "ro"),
            (sandbox.folder / "passwd", "/etc/passwd", "ro"),
            (sandbox.folder / "group", "/etc/group", "ro"),
            (etc / "chromium.d", "/etc/chromium.d", "ro"),
        ]
        if not self._config.image:
            shown = ("/usr", *command.VAR, *(f"/etc/{name}" for name in command.ETC))
            binds += [(Path(path), path, "ro") for path in shown if os.path.exists(path)]
            binds += [(etc / "local", "/usr/local", "ro")]
            if (editor := home.editor_place()) is not None:
                binds += [(editor, code_start.EDITOR, "ro")]
        words = {
            "--name": sandbox.name,
            "--label": f"{LABEL}={self._config.state_dir}",
            "--network": "none",
            "--hostname": "desktop",
            "--cap-drop": "ALL",
            "--user": f"{sandbox.lease.uid}:{sandbox.lease.uid}",
            "--memory": str(spec.memory_bytes),
            "--pids-limit": str(spec.processes),
            "--shm-size": str(command.SMALL_BYTES),
            "--tmpfs": "/run/sshd",
            "--workdir": command.GUEST_HOME,
        }
        # Of processes podman's own limit may be more than this host allows.
        limits = (f"nofile={spec.open_files}:{spec.open_files}", f"nproc={spec.processes}:{spec.processes}", "core=0:0")
        several = [
            *(("--security-opt", option) for option in ("no-new-privileges", f"seccomp={etc / 'seccomp.json'}")),
            *(("--ulimit", limit) for limit in limits),
            *(("--env", env) for env in (f"PATH={command.PATH}", f"USER={command.GUEST_USER}", "LANG=C.UTF-8")),
            *(("--volume", f"{source}:{place}:{how}".rstrip(":")) for source, place, how in binds),
        ]
        options = [word for pair in (*words.items(), *several) for word in pair]
        session = command.session_command(sandbox.name, (spec.width, spec.height), "--door", command.DOOR)
        return ["run", "--rm", "--read-only", *options, self._config.image or HOST_IMAGE, *session]

    async def _throw_away(self, sandbox: Sandbox) -> None:
        await super()._throw_away(sandbox)
        if sandbox.process is not None and sandbox.process.returncode < 0:
            # Its client was killed, and removes nothing.
            await asyncio.to_thread(self._remove, sandbox.name)


# Run by a shell of an ordinary user on another machine: the program's words, the container's name, its folder, where
# HOME lies, then options, image and the session's words.
_ELSEWHERE = """trap "" HUP  # the end of standard input ends the session in order
set -f  # a program's words are parted at spaces
program=$1 name=$2 folder=$3
shift 3
if test "$(id -u)" = 0; then echo "containers are for users without rights" >&2; false
else
    # One that is paused can't see that end: it is removed once who reached this machine has gone.
    (while test -e /proc/$PPID; do sleep 2; done; sleep 5; $program rm -f "$name") </dev/null >/dev/null 2>&1 &
    $program run --user "$(id -u):$(id -g)" "$@"
fi
ended=$?
kill $! 2>/dev/null
chmod -R u+rwx "$folder"; rm -rf "$folder"
exit $ended"""


def elsewhere(program: str, image: str, folder: str, spec: abc.DesktopSpec) -> list[str]:
    """The command that starts a container on another machine; the session's command is appended to it.

    The container has the name of `folder`, which lies on that machine.
    """
    name = os.path.basename(folder)
    words = f"""--rm -i --name {name} --label {LABEL} --stop-timeout 0 --network none --read-only --cap-drop ALL
        --security-opt no-new-privileges --memory {spec.memory_bytes} --pids-limit {spec.processes}
        --ulimit nofile={spec.open_files}:{spec.open_files} --ulimit nproc={spec.processes}:{spec.processes}
        --ulimit core=0:0 --shm-size {command.SMALL_BYTES}
        --tmpfs /tmp:exec --tmpfs /run"""
    place = "--volume", f"{folder}:{folder}"
    return ["/bin/sh", "-c", _ELSEWHERE, "sh", program, name, folder, *words.split(), *place, image]


def _empty_root() -> bytes:
    """A tar file of the folders that a root needs."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("usr", "etc", "var", "proc", "sys", "dev", "tmp", "run", "home", "opt"):
            Path(folder, name).mkdir()
            Path(folder, name).chmod(0o755)  # whatever the umask is
        for name, target in _LINKS.items():
            Path(folder, name).symlink_to(target)
        return home.packed({path.name: path for path in Path(folder).iterdir()})
