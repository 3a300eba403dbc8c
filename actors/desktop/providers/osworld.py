"""A way into machines that serve OSWorld's HTTP routes: an SSH server of the machine's own user, with keys made here.

The routes are those of the published images: GET /screenshot and /platform, POST /screen_size, /setup/upload and
/execute. The machine stays as it is but for one folder. What it answers is bounded and parsed.
"""

from __future__ import annotations

import asyncio

import aiohttp
import asyncssh
import msgspec

from actors.desktop.config import MachineConfig
from actors.desktop.faults import FaultCause, fault

FOLDER = ".computerrl"  # below the user's HOME is the agent's work: it lies in the machine's /tmp
READY_S = 300.0  # what the published harness waits for a machine
ROUTE_S = 60.0
ANSWER_BYTES = 1 << 20
_LOOK_S = 0.5
_PLACE = f"/tmp/{FOLDER}"  # noqa: S108 - the machine's own
_NEEDED = ("gi", "Xlib", "msgpack", "PIL")  # modules of its Python that the agent can't do without
_SSHD = f"""ListenAddress 0.0.0.0
HostKey {_PLACE}/host_key
AuthorizedKeysFile {_PLACE}/authorized_keys
PidFile {_PLACE}/pid
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
X11Forwarding no
AllowTcpForwarding no
LogLevel ERROR
"""
# An SSH server with other keys is one of a former run.
_START = b"""cd "$1" && chmod 600 ./*
kill "$(cat pid 2>/dev/null)" 2>/dev/null
exec /usr/sbin/sshd -f "$1/sshd_config" -p "$2"
"""
_LACKING = f"""
import importlib.util, os
lacking = [name for name in {_NEEDED!r} if importlib.util.find_spec(name) is None]
print(" ".join([*lacking, *([] if os.path.exists("/usr/sbin/sshd") else ["/usr/sbin/sshd"])]))
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


class WayIn:
    """The SSH server of one machine, which this opens again after the machine was reset."""

    def __init__(self, config: MachineConfig) -> None:
        self.host_key, self.client_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
        self._config = config
        self._url = f"http://{config.host}:{config.osworld_port}"

    async def open(self, size: tuple[int, int]) -> None:
        """Start the SSH server where it does not run yet. Raises DesktopFault.

        A screen of another `size` (width and height in pixels) is refused.
        """
        try:
            timeout = aiohttp.ClientTimeout(total=ROUTE_S)
            async with aiohttp.ClientSession(timeout=timeout) as http, asyncio.timeout(READY_S):
                await self._ready(http)
                await self._refuse_other(http, size)
                await self._start(http)
        except TimeoutError:
            raise self._fault(f"not ready within {READY_S:g} s") from None
        except (aiohttp.ClientError, OSError, msgspec.DecodeError) as error:
            raise self._fault(str(error)) from error

    async def _ready(self, http: aiohttp.ClientSession) -> None:
        while True:
            try:
                async with http.get(f"{self._url}/screenshot") as answer:
                    if answer.status == 200:
                        return
            except (aiohttp.ClientError, OSError):  # it boots
                await asyncio.sleep(_LOOK_S)
            await asyncio.sleep(_LOOK_S)

    async def _refuse_other(self, http: aiohttp.ClientSession, size: tuple[int, int]) -> None:
        platform = (await self._asked(http, "get", "/platform")).decode("utf-8", "replace").strip().strip('"')
        if platform != "Linux":
            raise self._fault(f"its platform is {platform[:40]!r}, and the agent needs Linux")
        there = msgspec.json.decode(await self._asked(http, "post", "/screen_size"), type=_Size)
        if (there.width, there.height) != size:
            have, want = f"{there.width}x{there.height}", f"{size[0]}x{size[1]}"
            raise self._fault(f"its screen is {have}, and desktops.screen is {want}: set it to {have}")

    async def _start(self, http: aiohttp.ClientSession) -> None:
        lacking = await self._execute(http, ["/usr/bin/python3", "-c", _LACKING])
        if lacking.strip():
            raise self._fault(f"it lacks {lacking.strip()[:200]}")
        await self._execute(http, ["install", "-d", "-m", "0700", _PLACE])
        files = {
            "host_key": self.host_key.export_private_key(),
            "authorized_keys": self.client_key.export_public_key(),
            "sshd_config": _SSHD.encode(),
            "start": _START,
        }
        for name, content in files.items():
            form = aiohttp.FormData({"file_path": f"{_PLACE}/{name}"})
            form.add_field("file_data", content, filename=name)
            await self._asked(http, "post", "/setup/upload", data=form)
        await self._execute(http, ["/bin/sh", f"{_PLACE}/start", _PLACE, str(self._config.port)])

    async def _execute(self, http: aiohttp.ClientSession, argv: list[str]) -> str:
        order = {"command": argv, "shell": False}
        ran = msgspec.json.decode(await self._asked(http, "post", "/execute", json=order), type=_Ran)
        if ran.status != "success" or ran.returncode:
            raise self._fault(f"{argv[0]}: {(ran.message or ran.error)[-200:]}")
        return ran.output

    async def _asked(self, http: aiohttp.ClientSession, verb: str, route: str, **more: object) -> bytes:
        async with http.request(verb, self._url + route, **more) as answer:  # type: ignore[arg-type]
            content = bytearray()
            async for piece in answer.content.iter_chunked(1 << 16):
                content += piece
                if len(content) > ANSWER_BYTES:
                    raise self._fault(f"{route} answers more than {ANSWER_BYTES} bytes")
            if answer.status != 200:
                raise self._fault(f"{route} answers {answer.status}: {bytes(content[:200])!r}")
        return bytes(content)

    def _fault(self, detail: str) -> Exception:
        return fault(FaultCause.MACHINE_UNREACHABLE, f"{self._url}: {detail}"[:300])
