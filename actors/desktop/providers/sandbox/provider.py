"""Desktops as sandboxes on this machine.

Invariant: a boot that fails or is cancelled leaves nothing behind. A destroyed desktop has no process, control group,
mount, folder or user left. Start processes only from the loop's own thread, because the kernel ends a sandbox together
with the thread that started it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, ClassVar, Self

import asyncssh

from actors.desktop import provider as abc
from actors.desktop.config import USUAL_SCREEN, SandboxConfig
from actors.desktop.faults import DesktopHealth, FaultCause, fault
from actors.desktop.files import read_home as outside
from actors.desktop.providers import home
from actors.desktop.providers.sandbox import cgroups, command, ending, owners, shares
from actors.desktop.providers.sandbox import sandbox as boxes
from actors.desktop.providers.sandbox.owners import lease_user
from actors.desktop.providers.sandbox.sandbox import Sandbox, Watched
from actors.errors import DesktopFault
from apis.applications import GUEST
from apis.guest.chromium import start as chromium_start
from apis.guest.session.members import PLUG
from apis.tasks.verify.verify import WantedFile
from runtime.errors import ConfigError

CLOSE_AGAIN_S = (0.1, 1.0, 3.0)  # a process that has just died keeps its desktop's group for a moment
PROGRAMS = ("bwrap", "prlimit", "setpriv", "Xvfb", "openbox", "dbus-daemon")
SOCKET_PATH_MAX = 107
START_S = 20.0
_LOOK_S = 0.01
COMPILE_S = 60.0
LAY_OUT_S = 120.0  # dead runs' desktops are removed first, and another provider may be at it


def nested_namespaces() -> bool:
    """Whether desktops may make user namespaces of their own: Chromium's sandbox, also VS Code's, is made of them."""
    return any(shutil.which(program) for program in chromium_start.PROGRAMS)


def owner_in(folder: str, run_id: str) -> owners.SandboxOwner:
    """This process as owner of a folder in the state folder `folder`. Raises ConfigError where no socket fits in it."""
    most = SOCKET_PATH_MAX - len(os.fsencode(Path(folder, "000000", "ssh"))) - len("/")
    try:
        owner = owners.SandboxOwner.this_process(run_id, most)
    except OSError as error:
        raise ConfigError(f"desktops.provider: no sandboxes: {error.strerror or error}") from error
    if (over := len(owner.name) - most) > 0:
        raise ConfigError(f"desktops.provider.state_dir {folder!r} is {over} bytes too long for sockets' paths")
    return owner


class SandboxProvider(abc.Provider):
    """Makes sandboxes with bubblewrap; one per actor process."""

    KIND: ClassVar[str] = "sandbox"
    NEEDS: ClassVar[tuple[str, ...]] = PROGRAMS

    def __init__(self, config: SandboxConfig, owner: owners.SandboxOwner) -> None:
        self._config = config
        self.usual = abc.DesktopSpec.of(config, USUAL_SCREEN)  # a desktop with the limits that it was asked for
        self._folder = Path(config.folder) / owner.name
        self._owner = owner
        self._held = -1  # its folder, locked
        self._sandboxes: dict[str, Sandbox] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._count = 0
        self._client_key = asyncssh.generate_private_key("ssh-ed25519")
        self._user_namespaces = nested_namespaces()
        self._filter = command.filter_program(user_namespaces=self._user_namespaces)

    @classmethod
    async def start(cls, config: SandboxConfig, run_id: str) -> Self:
        """Remove what dead runs left, then make this provider's folder. Raises ConfigError."""
        provider = cls(config, owner_in(config.folder, run_id))
        if missing := [name for name in provider.NEEDS if shutil.which(name) is None]:
            raise ConfigError(f"missing programs: {', '.join(missing)}; install deploy/guest/packages.txt")
        laying_out = asyncio.ensure_future(asyncio.to_thread(provider._lay_out))
        try:
            async with asyncio.timeout(LAY_OUT_S):
                await asyncio.shield(laying_out)
        except asyncio.CancelledError:  # a thread can't be stopped; what it makes must be there to be removed
            await asyncio.wait([laying_out], timeout=START_S)
            provider._pack_up()
            raise
        except TimeoutError as error:
            place = f"desktops.provider.state_dir {config.folder!r}"
            raise ConfigError(f"{place}: what dead runs left was not removed within {LAY_OUT_S:g} s") from error
        except ConfigError:
            provider._pack_up()
            raise
        except OSError as error:
            provider._pack_up()
            detail = error.strerror or str(error)[:300]  # a copy that failed has no number of its own
            raise ConfigError(f"desktops.provider.state_dir {config.folder!r}: {detail}") from error
        return provider

    def _lay_out(self) -> None:
        ending.reap(self._config.folder)
        lease_user().release()  # where none can be had, no desktop would boot
        self._held = self._owner.settle(self._folder.parent)
        etc = self._folder / "etc"
        etc.mkdir()
        (etc / "passwd").write_text(command.PASSWD)
        (etc / "group").write_text(command.GROUP)
        (etc / "chromium.d").mkdir()
        helper = Path(chromium_start.__file__).with_name(chromium_start.HELPER).resolve().relative_to(GUEST)
        (etc / "chromium.d" / "desktop").write_text(chromium_start.wrapper(f"{command.GUEST_CODE}/{helper}"))
        (etc / "code").write_text(command.EDITOR_PROGRAM)
        (etc / "code").chmod(0o755)
        # A copy: the sources may lie where the desktops' users can't go, and must not change under a running desktop.
        home.write_guest(self._folder / "guest")
        # Desktops can't write there, so each would compile what it imports again. It ends with a killed owner.
        compiled = [command.PYTHON, "-I", "-m", "compileall", "-q", str(self._folder / "guest")]
        compiled = ["setpriv", "--pdeathsig", "KILL", "--", *compiled]
        subprocess.run(compiled, check=True, stdout=subprocess.DEVNULL, timeout=COMPILE_S)
        home.write(self._folder / "home", home.finished())
        subprocess.run(["chmod", "-R", "a+rX", str(self._folder / "guest"), str(etc)], check=True)

    def _pack_up(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._let_go()

    def _let_go(self) -> None:
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    async def boot(self, spec: abc.DesktopSpec) -> abc.Desktop:
        self._count += 1
        number = self._count
        sandbox = Sandbox(f"{self._owner.name}.{number}", self._folder / str(number), lease_user(number))
        self._sandboxes[sandbox.name] = sandbox
        try:
            return await self._boot(sandbox, spec)
        except BaseException as error:
            try:
                await asyncio.shield(self._discard(sandbox))
            except (DesktopFault, OSError, TimeoutError) as left:  # `close` tries again
                error.add_note(f"{sandbox.name} was not removed: {left}")
            raise

    async def _boot(self, sandbox: Sandbox, spec: abc.DesktopSpec) -> abc.Desktop:
        host_key = asyncssh.generate_private_key("ssh-ed25519")
        template = Path(spec.home_template) if spec.home_template else self._folder / "home"
        authorized = self._client_key.export_public_key()
        try:
            work = asyncio.to_thread(sandbox.prepare, template, host_key.export_private_key(), authorized, spec)
            sandbox.preparing = asyncio.ensure_future(work)
            async with asyncio.timeout(START_S):
                await asyncio.shield(sandbox.preparing)
            await self._limit(sandbox, spec)
            init_pid = await self._launch(sandbox, spec)
        except TimeoutError:
            raise fault(FaultCause.BOOT_TIMEOUT, f"folders and control groups took over {START_S:g} s") from None
        except OSError as error:
            detail = sandbox.last_words() or f"{error.strerror}: {error.filename or ''}"
            raise fault(FaultCause.SANDBOX_REFUSED, detail) from error
        outside_view = abc.Outside(
            home=str(sandbox.disk / "home"),
            uid=sandbox.lease.uid,
            init_pid=init_pid,
            cgroups=sandbox.groups,
            shared=str(self._folder),
            trial=str(sandbox.trial),
        )
        return abc.Desktop(
            name=sandbox.name,
            provider=self.KIND,
            address=abc.SshAddress(socket=str(sandbox.plug)),
            username=command.GUEST_USER,
            host_key=host_key.export_public_key(),
            client_key=self._client_key.export_private_key(),
            agent=command.AGENT,
            home=command.GUEST_HOME,
            screen=(spec.width, spec.height),
            outside=outside_view,
            warnings=tuple(sandbox.warnings),
        )

    async def _limit(self, sandbox: Sandbox, spec: abc.DesktopSpec) -> None:
        """Its control groups, once desktops of this provider that are leaving have made room, and what dead runs left
        is gone. Raises DesktopFault where others hold all that the machine has for desktops."""
        reaped = False
        async with asyncio.timeout(START_S):
            while True:
                sandbox.preparing = asyncio.ensure_future(asyncio.to_thread(lambda: sandbox.limit(spec, shares.room())))
                try:
                    await asyncio.shield(sandbox.preparing)
                    return
                except cgroups.NoRoom as full:
                    if leaving := [task for name, task in self._leaving.items() if name != sandbox.name]:
                        await asyncio.wait(leaving, return_when=asyncio.FIRST_COMPLETED)
                    elif not reaped:
                        await asyncio.to_thread(ending.reap, self._config.folder)
                        reaped = True
                    else:
                        raise fault(FaultCause.SANDBOX_REFUSED, f"{full}; desktops of other runs have to end") from full

    async def _launch(self, sandbox: Sandbox, spec: abc.DesktopSpec) -> int:
        """Start it, put it into its groups while its session waits, let that go on; the process id of its init."""
        door = sandbox.make_door()
        with (sandbox.disk / boxes.LOG).open("wb") as log:
            # By the loop's thread, see above.
            sandbox.process = self._started(sandbox, spec, door, stdout=log, stderr=log, start_new_session=True)
        sandbox.outer = Watched(sandbox.process.pid)
        session = await self._session_of(sandbox, door / PLUG)
        sandbox.init = Watched(boxes.first_of(session))
        sandbox.take_door(door)
        # Not the outer process: what the guest exhausts must not end what tells the host how its session ended.
        inside = [sandbox.init.pid, session]
        sandbox.warnings += await asyncio.to_thread(cgroups.enter, sandbox.groups, inside)
        os.write(sandbox.lifeline, b"2")
        return sandbox.init.pid

    def _started(self, sandbox: Sandbox, spec: abc.DesktopSpec, door: Path, **more: Any) -> subprocess.Popen[bytes]:
        """The outer process, which starts the session with the folder `door` for its way in."""
        with command.filter_opened(self._filter) as filter_fd:
            argv = command.limited(spec.open_files) + command.sandbox_command(
                disk=sandbox.disk, shared=self._folder, editor=home.editor_place(), door=door,
                session=command.session_command(sandbox.name, (spec.width, spec.height), "--door", command.DOOR),
                filter_fd=filter_fd, user_namespaces=self._user_namespaces, terminals=sandbox.terminals,
            )  # fmt: skip
            return command.started(argv, sandbox.lease.uid, (filter_fd,), **more)

    async def _session_of(self, sandbox: Sandbox, plug: Path) -> int:
        """The process that listens at `plug`, once it does; the connection to it becomes the sandbox's lifeline."""
        try:
            async with asyncio.timeout(START_S):
                while (connection := boxes.connected(plug)) is None:
                    if sandbox.outer is None or not sandbox.outer.alive:
                        said = sandbox.last_words() or f"the {self.KIND} ended at once"
                        raise fault(FaultCause.SANDBOX_REFUSED, said)
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise fault(FaultCause.BOOT_TIMEOUT, f"no {self.KIND} within {START_S:g} s") from None
        session = boxes.listener_of(connection)
        sandbox.lifeline = connection.detach()
        return session

    async def probe(self, desktop: abc.Desktop) -> DesktopHealth:
        sandbox = self._sandboxes.get(desktop.name)
        left = ending.memory_left()
        if sandbox is None or sandbox.process is None or sandbox.init is None:
            return DesktopHealth(alive=False, memory_left=left)
        return DesktopHealth(
            alive=sandbox.alive,
            said=sandbox.last_words(),  # also of one that seems alive: it may be closing its socket just now
            exit_signal=max(0, -(sandbox.process.poll() or 0)),
            oom_kills=cgroups.oom_kills(sandbox.groups),
            processes_refused=cgroups.processes_refused(sandbox.groups),
            limit_hits=cgroups.limit_hits(sandbox.groups),
            memory_left=left,
            cpu_s=cgroups.cpu_s(sandbox.groups),
        )

    async def destroy(self, desktop: abc.Desktop) -> None:
        sandbox = self._sandboxes.get(desktop.name)
        if sandbox is not None:
            await asyncio.shield(self._discard(sandbox))

    def _discard(self, sandbox: Sandbox) -> asyncio.Task[None]:
        """The one task that throws this desktop away; it goes on when its waiters are cancelled."""
        task = self._leaving.get(sandbox.name)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._throw_away(sandbox), name=f"destroy {sandbox.name}")
            self._leaving[sandbox.name] = task
            task.add_done_callback(lambda _: self._leaving.pop(sandbox.name))
        return task

    async def _throw_away(self, sandbox: Sandbox) -> None:
        if sandbox.preparing is not None:  # a thread can't be stopped; what it makes must be there to be removed
            await asyncio.wait([sandbox.preparing], timeout=boxes.GONE_S)
        await sandbox.kill()
        await asyncio.to_thread(sandbox.remove)
        # Only now: one that could not be removed is still known to the next try, and holds its user.
        sandbox.close()
        self._sandboxes.pop(sandbox.name)

    async def freeze(self, desktop: abc.Desktop) -> None:
        sandbox = self._sandboxes.get(desktop.name)
        if desktop.outside is None or sandbox is None:
            raise fault(FaultCause.OUTSIDE_VIEW, f"{desktop.name} is not running here")
        if sandbox.alive:
            await ending.freeze(desktop.outside)
        if not sandbox.alive:  # also where it has ended meanwhile: what it has stored then proves no claim
            raise fault(FaultCause.OUTSIDE_VIEW, f"{desktop.name} has ended")

    async def read_home(
        self, desktop: abc.Desktop, wanted: list[WantedFile], limits: outside.ReadLimits
    ) -> list[outside.FileSeen]:
        if desktop.outside is None or desktop.name not in self._sandboxes:
            raise fault(FaultCause.OUTSIDE_VIEW, f"{desktop.name} is not running here")
        return await outside.read_home(desktop.outside.home, desktop.outside.uid, wanted, limits)

    async def close(self) -> None:
        for again_s in (*CLOSE_AGAIN_S, None):
            leaving = [self._discard(sandbox) for sandbox in self._sandboxes.values()]
            results = await asyncio.gather(*leaving, return_exceptions=True)
            if again_s is None or not any(isinstance(result, DesktopFault) for result in results):
                break
            await asyncio.sleep(again_s)
        await asyncio.to_thread(boxes.remove_folder, self._folder)
        self._let_go()
        for result in results:
            if isinstance(result, DesktopFault | OSError):
                raise result
