"""Ways into machines that take HTTP alone: an SSH server of the machine's own user there, with keys made here.

Machines that serve OSWorld's routes: those of the published images, GET /screenshot and /platform, POST /screen_size
and /execute. The machine stays as it is but for one folder. What a machine answers is bounded and parsed.
"""

from __future__ import annotations

import asyncio
import contextlib

import aiohttp
import asyncssh
import msgspec

from actors.desktop.config import MachineConfig
from actors.desktop.faults import FaultCause, fault
from actors.desktop.providers.sandbox import command
from actors.errors import DesktopFault
from runtime.http import AnswerTooLongError, NoAnswerError, request_json

PLACE = "/tmp/.computerrl"  # noqa: S108 - the machine's own; below its user's HOME is the agent's work
READY_S = 300.0  # what the published harness waits for a machine
ANSWER_S = 60.0  # one request
ANSWER_BYTES = 8 << 20
TEXT_MOST = 300
_LOOK_S = 0.5
_NEEDED = ("gi", "Xlib", "msgpack", "PIL")  # modules of its Python that the agent can't do without
SSHD = "/usr/sbin/sshd"
# Run by a shell with the keys and a port, 0 where none is to listen. It says the user's name.
_SERVER = f"""umask 077 && mkdir -p {PLACE} && cd {PLACE} || exit
printf %s "$1" >host_key && printf %s "$2" >authorized_keys && cat >sshd_config <<'END' || exit
{command.sshd(PLACE)}MaxSessions 32
END
{SSHD} -t -f {PLACE}/sshd_config && id -un || exit
test "$3" = 0 && exit
looks=0
again() {{ looks=$((looks + 1)); test $looks -lt 300 && sleep 0.1; }}
old=$(cat pid 2>/dev/null) && kill "$old" 2>/dev/null  # a server with other keys is one of a former run
while test -n "$old" && kill -0 "$old" 2>/dev/null && again; do :; done  # it has the port until it has ended
rm -f pid
{SSHD} -f {PLACE}/sshd_config -p "$3" -o PidFile={PLACE}/pid || exit
while ! test -s pid; do again || exit; done  # it detaches first, and writes its number once it listens
"""
_LACKING = f"""
import importlib.util, os
lacking = [name for name in {_NEEDED!r} if importlib.util.find_spec(name) is None]
print(" ".join([*lacking, *([] if os.path.exists("{SSHD}") else ["{SSHD}"])]))
"""


class _Size(msgspec.Struct, frozen=True):
    width: int
    height: int


class _Ran(msgspec.Struct, frozen=True):
    status: str
    output: str = ""
    error: str = ""
    returncode: int = 0
    message: str = ""


def refused(what: str, why: object) -> DesktopFault:
    """A machine or a service that does not do what it is asked for."""
    return fault(FaultCause.BOOT_FAILED, f"{what}: {why}"[:TEXT_MOST])


def lost(url: str, why: object) -> DesktopFault:
    """One that does not answer, or not as it should."""
    return fault(FaultCause.MACHINE_UNREACHABLE, f"{url}: {why}"[:TEXT_MOST])


async def asked(http: aiohttp.ClientSession, method: str, url: str, body: object = None) -> bytes | None:
    """The body of an answer to a request of JSON, None for status 404. Raises DesktopFault."""
    content = None if body is None else msgspec.json.encode(body)
    try:
        answer = await request_json(http, method, url, content, timeout_s=ANSWER_S, most=ANSWER_BYTES)
    except NoAnswerError as error:
        raise lost(url, f"{error} {error.detail}") from error
    except AnswerTooLongError as error:
        raise lost(url, error) from error
    if answer.status >= 300 and answer.status != 404:
        raise refused(f"{url}: status {answer.status}", answer.body[:TEXT_MOST].decode("utf-8", "replace"))
    return None if answer.status == 404 else answer.body


class ServerKeys:
    """The keys of an SSH server in a machine: its own, and that of its only client."""

    def __init__(self) -> None:
        self.host, self.client = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))

    def started(self, port: int = 0) -> tuple[str, ...]:
        """What the machine's user runs to have the server's files, and at a port the server."""
        both = self.host.export_private_key().decode(), self.client.export_public_key().decode()
        return "/bin/sh", "-c", _SERVER, "sh", *both, str(port)


class WayIn:
    """The SSH server of one machine, which this opens again after the machine was reset."""

    def __init__(self, config: MachineConfig) -> None:
        self.keys = ServerKeys()
        self._port = config.port
        self._url = f"http://{config.host}:{config.osworld_port}"

    async def open(self, size: tuple[int, int]) -> None:
        """Start the SSH server where it does not run yet. Raises DesktopFault.

        A screen of another `size` (width and height in pixels) is refused.
        """
        try:
            async with aiohttp.ClientSession() as http, asyncio.timeout(READY_S):
                await self._ready(http)
                await self._refuse_other(http, size)
                if lacking := (await self._execute(http, "/usr/bin/python3", "-c", _LACKING)).strip():
                    raise lost(self._url, f"it lacks {lacking[:200]}")
                await self._execute(http, *self.keys.started(self._port))
        except TimeoutError:
            raise lost(self._url, f"not ready within {READY_S:g} s") from None
        except msgspec.DecodeError as error:
            raise lost(self._url, error) from error

    async def _ready(self, http: aiohttp.ClientSession) -> None:
        while True:
            with contextlib.suppress(DesktopFault):  # it boots
                if await asked(http, "GET", f"{self._url}/screenshot") is not None:
                    return
            await asyncio.sleep(_LOOK_S)

    async def _refuse_other(self, http: aiohttp.ClientSession, size: tuple[int, int]) -> None:
        platform = (await self._route(http, "GET", "/platform")).decode("utf-8", "replace").strip().strip('"')
        if platform != "Linux":
            raise lost(self._url, f"its platform is {platform[:40]!r}, and the agent needs Linux")
        there = msgspec.json.decode(await self._route(http, "POST", "/screen_size"), type=_Size)
        if (there.width, there.height) != size:
            have, want = f"{there.width}x{there.height}", f"{size[0]}x{size[1]}"
            raise lost(self._url, f"its screen is {have}, and desktops.screen is {want}: set it to {have}")

    async def _execute(self, http: aiohttp.ClientSession, *argv: str) -> str:
        order = {"command": argv, "shell": False}
        ran = msgspec.json.decode(await self._route(http, "POST", "/execute", order), type=_Ran)
        if ran.status != "success" or ran.returncode:
            raise lost(self._url, f"{argv[0]}: {(ran.message or ran.error)[-200:]}")
        return ran.output

    async def _route(self, http: aiohttp.ClientSession, method: str, route: str, body: object = None) -> bytes:
        answer = await asked(http, method, self._url + route, body)
        if answer is None:
            raise lost(self._url, f"it has no route {route}")
        return answer
