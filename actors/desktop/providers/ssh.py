"""Desktops as sessions on machines that are reached by SSH and have the guest packages.

Invariant: a session lives exactly as long as the channel that started it. When this process ends, however it ends, the
machine's SSH server closes that channel. The session then kills what it started and removes its folder by itself.

This is weaker than a sandbox. All sessions of a machine share its user, and the verifier reads over SSH from that same
machine. Give it a machine (or a virtual machine) that holds nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import math
import os
import shlex
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

import asyncssh
import msgspec

from actors.desktop.config import MachineConfig, SshConfig
from actors.desktop.faults import DesktopHealth, FaultCause, fault
from actors.desktop.files import census, office
from actors.desktop.files import read_home as outside
from actors.desktop.files.read_home import FileSeen, ReadLimits
from actors.desktop.link import connect
from actors.desktop.provider import Desktop, DesktopSpec, Provider, SshAddress, SshWay
from actors.desktop.providers import container, home, osworld
from actors.errors import DesktopFault
from apis.guest.session.members import NOT_STOPPED
from apis.tasks.verify.manifest import MANIFEST
from apis.tasks.verify.verify import BYTES, WantedFile
from runtime.errors import ConfigError

PYTHON = "/usr/bin/python3"
MARK = "COMPUTERRL_DESKTOP"  # as in the guest's session: what it starts carries this in its environment
CONNECT_S = 10.0
ANSWER_S = 30.0
END_S = 30.0  # for a session to end by itself
FREEZE_S = 15.0  # longer than a keeper takes to say that it could not, and within the time that verifying has
PASSED_OVER_S = 60.0  # a machine on which a boot failed is passed over for so long while another has room
ROOM_S = 20.0  # for a desktop that is being given back, within the time that the pool lets a boot take
SESSIONS_EACH = 8  # errands on one connection
READ_S = 30.0
TURN_S = 120.0  # for other errands on the same machine to end
# Run by the machine's Python, which becomes the session. The archive comes first on the input that stays the session's.
UNPACK = """
import io, os, shutil, sys, tarfile
size, session, *command = sys.argv[1:]
data = b""
while len(data) < int(size) and (piece := os.read(0, int(size) - len(data))):
    data += piece
os.mkdir(session, 0o700)
try:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # newer ones warn without
        archive.extractall(session)
    os.execvp(command[0], command)
except BaseException:
    shutil.rmtree(session, ignore_errors=True)
    raise
"""


@functools.cache
def archive() -> bytes:
    """A compressed tar file with the folders guest, home and run, which each session is sent. Raises ConfigError."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        home.write_guest(place / "guest")
        profile = home.office_profile()  # of the machines' release; without its settings each save asks a question
        home.write(place / "home", {home.OFFICE_PROFILE: profile} if profile else {})
        (place / "run").mkdir(mode=0o700)
        return home.packed({name: place / name for name in ("guest", "home", "run")}, "w:gz")


class SshMachine:
    """One machine: its settings, its keys, and the connection for errands (looks from outside, removals).

    Each session has a connection of its own. A server allows a connection ten sessions (`MaxSessions`, unless set
    otherwise), so errands take turns.
    """

    def __init__(self, config: MachineConfig, client_key: asyncssh.SSHKey | None = None) -> None:
        """`client_key` is taken in place of the file that the settings name. Raises ConfigError."""
        self.config = config
        self._way_in: osworld.WayIn | None = None
        try:
            if config.osworld_port:
                self._way_in = osworld.WayIn(config)
                host_key, own_key = self._way_in.keys.host.convert_to_public(), self._way_in.keys.client
            else:
                host_key = asyncssh.import_public_key(config.host_key)
                own_key = client_key or asyncssh.read_private_key(config.client_key)
        except (OSError, asyncssh.KeyImportError) as error:
            raise ConfigError(f"desktops.provider.machines {config.host}: {error}") from error
        self.way = SshWay(
            address=SshAddress(host=config.host, port=config.port),
            username=config.user,
            host_key=host_key.export_public_key(),
            client_key=own_key.export_private_key(),
        )
        self.used = 0
        self.failed = -math.inf  # when a boot on it last did, by the loop's clock
        self._errands: asyncssh.SSHClientConnection | None = None
        self._connecting = asyncio.Lock()
        self._turn = asyncio.Semaphore(SESSIONS_EACH)

    async def connection(self) -> asyncssh.SSHClientConnection:
        """A connection. Raises DesktopFault."""
        try:
            async with asyncio.timeout(CONNECT_S):
                return await connect(self.way, keepalive_interval=15)
        except (OSError, asyncssh.Error) as error:
            raise fault(FaultCause.MACHINE_UNREACHABLE, f"{self.config.host}: {error}"[:300]) from error

    async def let_in(self, size: tuple[int, int]) -> None:
        """Make a way in where the machine has none yet. Raises DesktopFault."""
        if self._way_in is not None:
            await self._way_in.open(size)

    async def home(self) -> str:
        """HOME of the machine's user. Raises DesktopFault."""
        place = await self.output('printf %s "$HOME"')
        if place is None or not place.startswith("/"):
            raise fault(FaultCause.MACHINE_UNREACHABLE, f"{self.config.host}: HOME is {str(place)[:80]!r}")
        return place

    @contextlib.asynccontextmanager
    async def errand(self, limit_s: float) -> AsyncIterator[asyncssh.SSHClientConnection]:
        """A connection with room for one session, for `limit_s` from its turn on. Raises DesktopFault, TimeoutError."""
        async with asyncio.timeout(TURN_S):
            await self._turn.acquire()
        try:
            async with asyncio.timeout(limit_s):
                async with self._connecting:
                    if self._errands is None or self._errands.is_closed():
                        self._errands = await self.connection()
                yield self._errands
        finally:
            self._turn.release()

    async def close(self) -> None:
        if self._errands is not None:
            self._errands.close()
            async with asyncio.timeout(CONNECT_S):
                await self._errands.wait_closed()

    async def output(self, command: str) -> str | None:
        """What a command writes there, None where the machine does not carry it out now."""
        try:
            async with self.errand(CONNECT_S) as connection:
                done = await connection.run(command, check=False)
        except (DesktopFault, asyncssh.Error, OSError):
            return None
        return None if done.exit_status else str(done.stdout)


class _Session(msgspec.Struct):
    """One desktop on a machine. `keeper` is the process that holds it; the end of its input ends the session."""

    machine: SshMachine
    connection: asyncssh.SSHClientConnection  # the keeper's
    folder: str
    token: str
    keeper: asyncssh.SSHClientProcess[bytes]
    home: str
    given_back: bool = False  # its place on the machine

    @property
    def container(self) -> str:
        """The container command of that machine, such as docker; "" where desktops there have no container."""
        return self.machine.config.container

    @property
    def held(self) -> bool:
        """Whether the keeper lives: it has not ended its output, nor has its connection been lost."""
        return not (self.keeper.is_closing() or self.keeper.stdout.at_eof())

    @property
    def name(self) -> str:
        return os.path.basename(self.folder)

    async def pause(self) -> None:
        """Pause the container. Raises DesktopFault."""
        if await self.machine.output(f"{self.container} pause {self.name}") is None:
            raise fault(FaultCause.STILL_RUNNING, f"{self.folder}: {self.container} pause failed")

    async def ask(self, word: str, answer: str, silent: FaultCause, within_s: float = ANSWER_S) -> None:
        """Say a word to the keeper and wait for its answer. Raises DesktopFault: `silent` where none comes in time."""
        try:
            async with asyncio.timeout(within_s):
                if word:
                    self.keeper.stdin.write(word.encode() + b"\n")
                reply = (await self.keeper.stdout.readline()).decode("utf-8", "replace")
                if reply == answer + "\n":
                    return
                if reply.startswith(NOT_STOPPED):
                    raise fault(FaultCause.STILL_RUNNING, reply.strip()[:200])
                error = (await self.keeper.stderr.read(2000)).decode("utf-8", "replace").strip().splitlines()[-1:]
        except TimeoutError:
            raise fault(silent, f"{self.folder}: no {answer!r} within {within_s:g} s") from None
        except (OSError, asyncssh.Error) as error_:
            raise fault(FaultCause.MACHINE_UNREACHABLE, f"{self.folder}: {error_}"[:300]) from error_
        raise fault(FaultCause.BOOT_FAILED, f"{self.folder}: {''.join(error)[:200] or 'the session ended'}")

    async def end(self) -> None:
        """Let the session end itself, or end it where its keeper was killed or stopped.

        Raises DesktopFault when it does not end.
        """
        try:
            if self.held and not self.container:
                async with asyncio.timeout(END_S):
                    self.keeper.stdin.write_eof()
                    await self.keeper.wait_closed()
            if self.container or self.keeper.exit_status != 0:  # it may be paused, or was killed
                await self.sweep()
        except TimeoutError:
            await self.sweep()
        except (OSError, asyncssh.Error) as error:
            raise fault(FaultCause.MACHINE_UNREACHABLE, f"{self.folder}: {error}"[:300]) from error
        finally:
            self.connection.abort()

    async def sweep(self) -> None:
        """End and remove all that a keeper which can't do so has left, itself among it. Raises DesktopFault."""
        self.keeper.close()
        folder = shlex.quote(self.folder)
        sweep = shlex.join([PYTHON, "-I", f"{self.folder}/guest", "sweep", self.token, self.folder])
        if self.container:  # its program fails once where the container's monitor was killed
            remove = f"{self.container} rm -f {self.name}"
            sweep = f"{remove} || {remove}; pkill -KILL -f '[-]-token {self.token}'; false"  # and what waits for it
        # It may have ended itself, or have no code yet.
        command = f"{sweep} || {{ chmod -R u+rwx {folder}; rm -rf {folder}; }}; ! test -e {folder}"
        try:
            async with self.machine.errand(ANSWER_S) as connection:
                done = await connection.run(command, check=False)
        except (TimeoutError, OSError, asyncssh.Error) as error:
            detail = f"{self.folder}: {str(error) or 'it was not removed'}"
            raise fault(FaultCause.MACHINE_UNREACHABLE, detail[:300]) from error
        if done.exit_status:
            raise fault(FaultCause.BOOT_FAILED, f"{self.folder}: not removed: {str(done.stderr)[-200:]}")


async def office_releases(config: SshConfig) -> dict[str, str]:
    """By HOST:PORT of each machine, LibreOffice's release there, "" where none answers. Raises ConfigError."""
    machines = [SshMachine(machine) for machine in config.machines]
    try:
        answers = await asyncio.gather(*(machine.output(_office_of(machine.config)) for machine in machines))
    finally:
        await asyncio.gather(*(machine.close() for machine in machines), return_exceptions=True)
    return {
        f"{machine.host}:{machine.port}": office.release(answer or "none")
        for machine, answer in zip(config.machines, answers, strict=True)
    }


def _office_of(machine: MachineConfig) -> str:
    """The command that prints the LibreOffice release of that machine's desktops."""
    if not machine.container:
        return office.VERSION
    return f"{machine.container} run --rm --network none {machine.image} /bin/sh -c {shlex.quote(office.VERSION)}"


class SessionProvider(Provider):
    """What desktops have in common that are sessions on machines reached by SSH."""

    KIND: ClassVar[str]
    WARNING: ClassVar[str]

    def __init__(self, desktops: int) -> None:
        self._free = asyncio.Semaphore(desktops)
        self._sessions: dict[str, _Session] = {}

    async def _take_place(self) -> None:
        """Wait up to `ROOM_S` while there is no room for another desktop: one is about to be given back."""
        try:
            async with asyncio.timeout(ROOM_S):
                await self._free.acquire()
        except TimeoutError:
            raise fault(FaultCause.NO_SPARE, "no machine has room for another desktop") from None

    async def _boot_on(self, machine: SshMachine, name: str, spec: DesktopSpec) -> Desktop:
        """Start a session there, called `name` and its token. Raises DesktopFault."""
        token = os.urandom(8).hex()
        folder = f"{machine.config.folder}/computerrl-{token}"
        session = await self._start(machine, folder, token, spec)
        within = (*shlex.split(session.container), "exec", "-i", session.name) if session.container else ()
        agent = ("env", f"{MARK}={token}", PYTHON, "-I", f"{folder}/guest", "attach", "--run", f"{folder}/run")
        name = f"{name}.{token}"
        self._sessions[name] = session
        return Desktop(
            name=name,
            provider=self.KIND,
            **msgspec.structs.asdict(machine.way),
            agent=(*within, *agent),
            home=session.home,
            screen=(spec.width, spec.height),
            warnings=() if session.container else (self.WARNING,),
            password=machine.config.password,
        )

    async def _start(self, machine: SshMachine, folder: str, token: str, spec: DesktopSpec) -> _Session:
        # The mark finds the processes of a keeper that was stopped.
        code = await asyncio.to_thread(archive)
        await machine.let_in((spec.width, spec.height))
        display, home = machine.config.shown_at, f"{folder}/home"
        if display:
            home = await machine.home()
        own = machine.config
        within = container.elsewhere(own.container, own.image, folder, spec) if own.container else []
        command = shlex.join([
            PYTHON, "-I", "-S", "-c", UNPACK, str(len(code)), folder, *within,
            "env", f"{MARK}={token}", PYTHON, "-I", f"{folder}/guest", "session",
            "--run", f"{folder}/run", "--home", home, "--token", token,
            "--size", f"{spec.width}x{spec.height}", "--keep", folder, "--display", display,
        ])  # fmt: skip
        connection = await machine.connection()
        try:
            try:
                async with asyncio.timeout(ANSWER_S):
                    keeper = await connection.create_process(command, encoding=None)
                    with contextlib.suppress(BrokenPipeError):  # it has ended already, and its output says why
                        keeper.stdin.write(code)
            except TimeoutError:
                raise fault(FaultCause.BOOT_TIMEOUT, f"{machine.config.host}: no session's channel opened") from None
            except (OSError, asyncssh.Error) as error:
                raise fault(FaultCause.MACHINE_UNREACHABLE, f"{machine.config.host}: {error}"[:300]) from error
            session = _Session(machine, connection, folder, token, keeper, home)
            try:
                await session.ask("", "up", FaultCause.BOOT_TIMEOUT)
            except DesktopFault:
                with contextlib.suppress(DesktopFault):  # the first one says more
                    await session.sweep()  # its keeper was killed, or hangs
                raise
        except BaseException:
            # The end of its input ends the session, which removes its folder; `close` would send all code first.
            connection.abort()
            raise
        return session

    def _session(self, desktop: Desktop) -> _Session:
        session = self._sessions.get(desktop.name)
        if session is None:
            raise fault(FaultCause.OUTSIDE_VIEW, f"{desktop.name} is not running")
        return session

    async def probe(self, desktop: Desktop) -> DesktopHealth:
        """See `Provider.probe`: the session's channel tells whether it lives, a command whether the machine does."""
        session = self._sessions.get(desktop.name)
        if session is None:
            return DesktopHealth(alive=False)
        reachable = await session.machine.output("true") is not None
        return DesktopHealth(alive=reachable and session.held, reachable=reachable)

    async def freeze(self, desktop: Desktop) -> None:
        """See `Provider.freeze`; a keeper that answers nothing is one that programs of its own user have stopped."""
        session = self._session(desktop)
        if session.container:
            await session.pause()
        else:
            await session.ask("freeze", "frozen", FaultCause.STILL_RUNNING, FREEZE_S)

    async def read_home(self, desktop: Desktop, wanted: list[WantedFile], limits: ReadLimits) -> list[FileSeen]:
        """See `Provider.read_home`; over the control connection, after the session's processes were stopped."""
        session = self._session(desktop)
        try:
            async with session.machine.errand(READ_S) as connection:
                seen = await read_home(connection, session.home, wanted, limits)
        except TimeoutError:
            raise fault(FaultCause.OUTSIDE_VIEW, f"reading took over {READ_S:g} s") from None
        except (OSError, asyncssh.Error) as error:
            raise fault(FaultCause.MACHINE_UNREACHABLE, f"{desktop.name}: {error}"[:300]) from error
        return await outside.parsed_here(wanted, seen, limits)


class SshProvider(SessionProvider):
    """Spreads desktops over the configured machines, the least used first, those where a boot has just failed last."""

    KIND = "ssh"
    WARNING = "no sandbox: sessions of one machine share its user"

    def __init__(self, config: SshConfig) -> None:
        if not config.machines:
            raise ConfigError("desktops.provider.machines is empty")
        super().__init__(config.desktops)
        self._machines = [SshMachine(machine) for machine in config.machines]

    async def boot(self, spec: DesktopSpec) -> Desktop:
        """See `Provider.boot`: starts a session of the machine's ordinary user and sends it its code."""
        await self._take_place()
        now = asyncio.get_running_loop().time()
        free = (candidate for candidate in self._machines if candidate.used < candidate.config.desktops)
        machine = min(free, key=lambda candidate: (now < candidate.failed + PASSED_OVER_S, candidate.used))
        machine.used += 1
        try:
            desktop = await self._boot_on(machine, machine.config.host, spec)
        except BaseException:
            machine.failed = asyncio.get_running_loop().time()  # whatever ended it: this decides only who comes first
            self._give_back(machine)
            raise
        machine.failed = -math.inf
        return desktop

    def _give_back(self, machine: SshMachine) -> None:
        machine.used -= 1
        self._free.release()

    async def destroy(self, desktop: Desktop) -> None:
        session = self._sessions.get(desktop.name)
        if session is None:
            return
        try:
            await session.end()
        finally:
            if not session.given_back:  # also where it did not end: its machine may be gone for good
                session.given_back = True
                self._give_back(session.machine)
        self._sessions.pop(desktop.name, None)

    async def close(self) -> None:
        sessions, self._sessions = list(self._sessions.values()), {}
        results = await asyncio.gather(*(session.end() for session in sessions), return_exceptions=True)
        # A machine that does not answer keeps no connection to another one open.
        results += await asyncio.gather(*(machine.close() for machine in self._machines), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result


ANSWER_BYTES = 16 << 20  # beyond the files' own: the manifest, and what is said of each path
# Order and program come on standard input, so that nothing of them lies where the session could change it.
RUN = "import sys; order = sys.stdin.buffer.readline(); exec(sys.stdin.buffer.read())"
_ANSWER = rb"""
order = json.loads(order)
try:
    home = os.open(order["home"], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
except OSError as error:
    cut = json.dumps({"cut": f"HOME can't be opened: {error.strerror}"}).encode()
    looks = [want["as_"] == "manifest" for want in order["wanted"]]
    answers = [{"size": len(cut), "as_": "manifest"} if look else {"refusal": "forbidden"} for look in looks]
    results = [{"path": want["path"], **answer} for want, answer in zip(order["wanted"], answers)]
    blobs = [cut] * sum(looks)
else:
    results, blobs = read_all(home, order)
sys.stdout.buffer.write(json.dumps(results).encode() + b"\n" + b"".join(blobs))
"""
PROGRAM = Path(census.__file__).read_bytes() + _ANSWER


def order_of(folder: str, wanted: list[WantedFile], limits: ReadLimits) -> bytes:
    """What the program gets in its first line."""
    wants = [
        {"path": want.path, "as_": MANIFEST if want.as_ == MANIFEST else BYTES, "sought": want.sought}
        for want in wanted
    ]
    return json.dumps({**msgspec.to_builtins(limits), "home": folder, "wanted": wants}).encode() + b"\n"


async def read_home(
    connection: asyncssh.SSHClientConnection, folder: str, wanted: list[WantedFile], limits: ReadLimits
) -> list[FileSeen]:
    """Files, folders and manifest below `folder`, by the program that reads HOMEs here; documents stay bytes.

    The session's processes must have been stopped before, because a path is looked at and then opened. Raises OSError,
    asyncssh.Error, and DesktopFault for an answer that is not understood.
    """
    if len(wanted) > limits.paths:
        raise ValueError(f"{len(wanted)} paths, at most {limits.paths}")
    command, most = shlex.join([PYTHON, "-I", "-S", "-c", RUN]), limits.total_bytes + ANSWER_BYTES
    async with await connection.create_process(command, encoding=None) as process:
        process.stdin.write(order_of(folder, wanted, limits) + PROGRAM)
        process.stdin.write_eof()
        output = bytearray()
        while piece := await process.stdout.read(1 << 20):
            output += piece
            if len(output) > most:
                raise fault(FaultCause.OUTSIDE_VIEW, f"an answer of more than {most} bytes")
        troubles = (await process.stderr.read(2000)).decode("utf-8", "replace").strip()[-200:]
    if not output:
        raise fault(FaultCause.OUTSIDE_VIEW, f"HOME was not read: {troubles}"[:300])
    return outside.parse(wanted, bytes(output))
