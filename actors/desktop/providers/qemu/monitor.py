"""Talks to qemu (QMP) and to its agent inside a machine (QGA): a JSON object a line over a Unix socket.

The agent is in the hands of the guest. What it answers is bounded, and an answer that is not understood is a fault.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from actors.desktop.faults import FaultCause, fault
from actors.errors import DesktopFault

LINE_BYTES = 4 << 20
ANSWER_S = 20.0
TRY_S = 2.0  # a machine that is still booting reads nothing
ERROR_BYTES = 200
_LOOK_S = 0.05
NO_ARGUMENTS: Mapping[str, object] = {}
_CLEAR = b"\xff"  # ends what the agent has read of a line that somebody else began, and comes before its next answer


class _Answer(msgspec.Struct):
    result: Any = msgspec.field(name="return", default=msgspec.UNSET)
    error: Any = None


class _Ran(msgspec.Struct):
    exited: bool
    exitcode: int = -1
    errors: str = msgspec.field(name="err-data", default="")


class Monitor:
    """One connection. Commands wait for each other, and one that is not answered in time closes it."""

    def __init__(self, path: Path, what: str) -> None:
        self._path = path
        self._what = what  # in faults
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._turn = asyncio.Lock()

    async def connect(self) -> None:
        """Open the socket as soon as somebody listens there. Raises DesktopFault."""
        try:
            async with asyncio.timeout(ANSWER_S):
                while self._streams is None:
                    with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                        self._streams = await asyncio.open_unix_connection(self._path, limit=LINE_BYTES)
                        return
                    await asyncio.sleep(_LOOK_S)
        except (TimeoutError, OSError) as error:
            raise fault(FaultCause.BOOT_TIMEOUT, f"{self._what}: nobody listens: {error}"[:300]) from error

    async def order(
        self,
        command: str,
        arguments: Mapping[str, object] = NO_ARGUMENTS,
        within_s: float = ANSWER_S,
        lead: bytes = b"",
        only: object = msgspec.UNSET,
    ) -> Any:
        """What a command returns, which comes after `lead`; events are passed over, as is what is not `only`.

        Raises DesktopFault.
        """
        reader, writer = self._open()
        answered = False
        try:
            async with asyncio.timeout(within_s):
                async with self._turn:
                    writer.write(lead + msgspec.json.encode({"execute": command, "arguments": arguments}) + b"\n")
                    await writer.drain()
                    while not answered:
                        answer = msgspec.json.decode((await reader.readline()).rpartition(_CLEAR)[2], type=_Answer)
                        said = answer.result is not msgspec.UNSET or answer.error is not None
                        answered = said if only is msgspec.UNSET else answer.result == only
        except TimeoutError:
            raise fault(FaultCause.OUTSIDE_VIEW, f"{self._what} {command}: no answer in {within_s:g} s") from None
        except (OSError, ValueError, msgspec.DecodeError) as error:
            raise fault(FaultCause.OUTSIDE_VIEW, f"{self._what} {command}: {error}"[:300]) from error
        finally:
            if not answered:
                self.close()  # a late answer would be taken for that of the next command
        if answer.error is not None:
            raise fault(FaultCause.OUTSIDE_VIEW, f"{self._what} {command}: {answer.error}"[:300])
        return answer.result

    async def hand_over(self, file: int, name: str) -> None:
        """Give qemu an open file under a name. Raises DesktopFault."""
        _, writer = self._open()
        with socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())) as plug:
            socket.send_fds(plug, [b" "], [file])
        await self.order("getfd", {"fdname": name})

    async def sync(self, within_s: float) -> None:
        """Wait until the agent answers, with nothing of former connections left. Raises DesktopFault."""
        until = asyncio.get_running_loop().time() + within_s
        while True:
            mark = int.from_bytes(os.urandom(4))
            try:
                await self.connect()
                # It may yet answer what former connections asked.
                await self.order("guest-sync-delimited", {"id": mark}, TRY_S, _CLEAR, mark)
                return
            except DesktopFault:
                if asyncio.get_running_loop().time() > until:
                    raise
                await asyncio.sleep(_LOOK_S)

    async def run(self, script: str, given: bytes, within_s: float) -> None:
        """Run a shell script as the machine's root by the agent, with that input. Raises DesktopFault."""
        data = base64.b64encode(given).decode()
        command = {"path": "/bin/sh", "arg": ["-c", script], "input-data": data, "capture-output": True}
        try:
            async with asyncio.timeout(within_s):
                started = await self.order("guest-exec", command, within_s)
                while True:
                    ran = msgspec.convert(await self.order("guest-exec-status", started, within_s), _Ran)
                    if ran.exited:
                        break
                    await asyncio.sleep(_LOOK_S)
            errors = base64.b64decode(ran.errors)[-ERROR_BYTES:].decode("utf-8", "replace")
        except TimeoutError:
            raise fault(FaultCause.OUTSIDE_VIEW, f"{self._what}: a script took over {within_s:g} s") from None
        except (ValueError, TypeError, msgspec.DecodeError) as error:
            raise fault(FaultCause.OUTSIDE_VIEW, f"{self._what}: {error}"[:300]) from error
        if ran.exitcode:
            raise fault(FaultCause.BOOT_FAILED, f"{self._what}: a script ended with {ran.exitcode}: {errors}")

    def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            raise fault(FaultCause.OUTSIDE_VIEW, f"{self._what} is not connected")
        return self._streams

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
