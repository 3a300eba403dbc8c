"""Reading the HOME of a session on an SSH machine, by the program that reads HOMEs on this one.

Invariant: only regular files of HOME are read, within the limits, and no link is followed on the way. The session's
processes must have been stopped before, because a path is looked at and then opened.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import asyncssh
import msgspec

from actors.desktop.faults import FaultCause, fault
from actors.desktop.files import census
from actors.desktop.files import read_home as outside
from actors.desktop.files.read_home import FileSeen, ReadLimits
from apis.tasks.verify.manifest import MANIFEST
from apis.tasks.verify.verify import BYTES, WantedFile

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
    connection: asyncssh.SSHClientConnection, python: str, folder: str, wanted: list[WantedFile], limits: ReadLimits
) -> list[FileSeen]:
    """Files, folders and manifest below `folder`, as `Provider.read_home` gives them; documents stay bytes.

    Raises OSError, asyncssh.Error, and DesktopFault for an answer that is not understood.
    """
    if len(wanted) > limits.paths:
        raise ValueError(f"{len(wanted)} paths, at most {limits.paths}")
    command, most = shlex.join([python, "-I", "-S", "-c", RUN]), limits.total_bytes + ANSWER_BYTES
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
