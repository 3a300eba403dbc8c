"""Simulated desktops: an SSH server whose sessions are scripts. It prints its port, and ends with its parent process.

Connection, keys, channels and frames are real. Behind them is no X, no application and no file, and every HOME is
empty. Every agent shows a document of its own, of which a share changes from look to look.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shlex
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import asyncssh
import msgspec
import uvloop

from actors.cluster.runs.run import raise_file_limit
from actors.desktop.config import MachineConfig
from apis.tasks.verify.manifest import Manifest
from runtime.errors import ConfigError
from runtime.program import die_with

MODULE = "tests.simulated_desktops"
SCREENS = ("text", "sheet", "page")
CHANGED = 0.15  # of the elements between two looks: what `README.md` reports of real desktops
VOCABULARY = 20_000  # words of all documents
PICTURE = b"\xff\xd8" + bytes(40_000)
_LENGTH = struct.Struct(">I")
_WORDS = ("clover", "basin", "harvest", "ledger", "quartz", "meadow", "tunnel", "anchor", "brisk", "violet")
_WINDOW = {"id": 7, "class": "Mousepad", "title": "plum", "active": True, "x": 0, "y": 0, "w": 9, "h": 9, "pid": 5}
_ANSWERS: dict[str, Any] = {
    "ping": "pong", "ready": True, "launch": 5, "running": [5], "windows": [_WINDOW], "screenshot": PICTURE,
    "checksum": 1, "tool": "ok", "info": "", "settle": True, "wait_window": _WINDOW, "open_window": _WINDOW,
    "raise_window": _WINDOW, "read_file": b"", "type_text": "", "type_on": "",
}  # fmt: skip


class GuestsConfig(msgspec.Struct, frozen=True):
    """What one server of simulated desktops is started with."""

    host_key: str  # file
    client_keys: str  # file of public keys
    screen: str
    parent: int  # pid
    changed: float = CHANGED
    host: str = "127.0.0.1"


def observation(screen: str, number: int) -> dict[str, Any]:
    """What `observe` answers: an editor with 30 elements, a sheet of 400 cells, or a page of 400 long links."""
    chance = random.Random(f"{screen} {number}")

    def text(count: int) -> str:
        return " ".join(chance.choice(_WORDS) for _ in range(count))

    def bar(names: str) -> list[list[Any]]:
        return [["menu", name, "", 40 * at, 25, 38, 22, ["sen"], 0] for at, name in enumerate(names.split())]

    if screen == "text":
        rows = bar("File Edit Search View Document Help")
        rows += [["text", "", text(40), 0, 50, 1280, 640, ["foc", "sen", "edt"], 0]]
        rows += [["push-button", text(2), "", 10 * at, 700, 30, 18, ["sen"], 0] for at in range(23)]
        return _frame("Mousepad", f"clover{number}.md - Mousepad", rows)
    if screen == "sheet":
        rows = bar("File Edit View Insert Format Styles Sheet Data Tools Window Help")
        rows += [
            ["table-cell", f"{chr(65 + column)}{row + 1}", text(1) if column else str(chance.randint(1, 99999)),
             60 + 80 * column, 200 + 17 * row, 80, 17, ["sen", "edt"], 0]
            for row in range(28) for column in range(12)
        ]  # fmt: skip
        rows += [["push-button", text(2), "", 24 * at, 60, 22, 22, ["sen"], 0] for at in range(53)]
        return _frame("libreoffice-calc", f"book{number}.xlsx - LibreOffice Calc", rows, text(60))
    rows = [["link", text(6), "", 10 + 400 * (at % 3), 40 + 5 * at, 380, 17, ["sen"], 0] for at in range(400)]
    return _frame("chromium", f"Page {number} - Chromium", rows, text(60))


def _frame(wm_class: str, title: str, rows: list[list[Any]], info: str = "") -> dict[str, Any]:
    windows = [{"id": 0x1400000, "class": wm_class, "title": title, "active": True, "minimised": False}]
    return {"windows": windows, "elements": rows, "carets": [], "cut": False, "beyond": 0, "info": info}


class Document:
    """What one desktop shows; `words` are those of all of them."""

    def __init__(self, screen: str, words: Sequence[str], changed: float, seed: str) -> None:
        self._words = words
        self._chance = random.Random(seed)
        self._frame = observation(screen, self._chance.randrange(1 << 30))
        rows = self._frame["elements"]
        self._rows = [row for row in rows if row[0] != "menu"]
        self._count = min(len(self._rows), round(changed * len(rows)))
        for row in self._rows:
            self._reword(row)
        self._frame["info"] = self._reworded(self._frame["info"])

    def look(self) -> dict[str, Any]:
        """What `observe` answers now; a share of the elements has other texts than at the look before."""
        for row in self._chance.sample(self._rows, self._count):
            self._reword(row)
        return self._frame

    def _reword(self, row: list[Any]) -> None:
        at = 2 if row[2] else 1
        row[at] = self._reworded(row[at])

    def _reworded(self, text: str) -> str:
        chance = self._chance
        return " ".join(
            str(chance.randint(1, 99999)) if word.isdigit() else chance.choice(self._words) for word in text.split()
        )


def vocabulary() -> list[str]:
    """Words like English ones: syllables at random, some with a capital."""
    chance = random.Random("vocabulary")

    def word() -> str:
        parts = (chance.choice("bcdfghklmnprstvw") + chance.choice("aeiou") for _ in range(chance.randint(1, 4)))
        return "".join(parts) + chance.choice(["", "n", "r", "s", "ing"])

    return [word().capitalize() if chance.random() < 0.5 else word() for _ in range(VOCABULARY)]


class Guests:
    """Answers the sessions of one server."""

    def __init__(self, config: GuestsConfig) -> None:
        encode = msgspec.msgpack.encode
        self._config = config
        self._words = vocabulary()
        self._begun = 0  # sessions of agents
        self._answers = {method: encode(answer) for method, answer in _ANSWERS.items()}
        self._manifest = msgspec.json.encode(Manifest())

    async def serve(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        """Be what the command line asks for."""
        words = shlex.split(process.command or "")
        try:
            if "attach" in words:
                await self._agent(process)
            elif "session" in words:
                await self._session(process, int(words[words.index("-c") + 2]))
            else:
                if "-c" in words:  # what HOME holds
                    process.stdout.write(self._home(await process.stdin.read()))
                process.exit(0)
        except (asyncssh.Error, asyncio.IncompleteReadError, OSError):  # the controller closed it
            process.close()

    def _home(self, asked: bytes) -> bytes:
        """An empty HOME: its manifest, and no file."""
        manifest = {"size": len(self._manifest), "as_": "manifest"}
        wanted = json.loads(asked.partition(b"\n")[0])["wanted"]
        looks = [want["as_"] == "manifest" for want in wanted]
        answers = [manifest if look else {"refusal": "missing"} for look in looks]
        head = [{"path": want["path"], **answer} for want, answer in zip(wanted, answers, strict=True)]
        return json.dumps(head).encode() + b"\n" + self._manifest * sum(looks)

    async def _agent(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        decoder = msgspec.msgpack.Decoder(dict[str, Any])
        self._begun += 1
        config, seed = self._config, f"{os.getpid()} {self._begun}"
        document = Document(config.screen, self._words, config.changed, seed)
        while True:
            (size,) = _LENGTH.unpack(await process.stdin.readexactly(_LENGTH.size))
            asked = decoder.decode(await process.stdin.readexactly(size))
            number, method = asked["i"], asked["m"]
            seen = msgspec.msgpack.encode(document.look()) if method == "observe" else None
            answer = seen or self._answers.get(method, b"\xc0")
            reply = b"\x82\xa1i" + msgspec.msgpack.encode(number) + b"\xa1r" + answer
            process.stdout.write(_LENGTH.pack(len(reply)) + reply)

    async def _session(self, process: asyncssh.SSHServerProcess[bytes], archive_bytes: int) -> None:
        await process.stdin.readexactly(archive_bytes)
        process.stdout.write(b"up\n")
        while word := await process.stdin.readline():
            if word == b"freeze\n":
                process.stdout.write(b"frozen\n")
        process.exit(0)


async def listening(config: GuestsConfig) -> asyncssh.SSHAcceptor:
    """A server of simulated desktops in this process, on a port of its own."""
    return await asyncssh.listen(
        config.host,
        0,
        server_host_keys=[config.host_key],
        authorized_client_keys=config.client_keys,
        process_factory=Guests(config).serve,
        encoding=None,
        backlog=4096,
        login_timeout=300,
    )


async def _listen(config: GuestsConfig) -> None:
    server = await listening(config)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.wait_closed()


def keys(folder: Path, screen: str, changed: float = CHANGED) -> tuple[GuestsConfig, MachineConfig]:
    """What a server whose keys lie in `folder` is started with, and a machine of it but for port and desktops."""
    host_key, client_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    host_key.write_private_key(folder / "host_key")
    client_key.write_private_key(folder / "client_key")
    client_key.write_public_key(folder / "client_keys")
    config = GuestsConfig(
        host_key=str(folder / "host_key"),
        client_keys=str(folder / "client_keys"),
        screen=screen,
        parent=os.getpid(),
        changed=changed,
    )
    public = host_key.export_public_key().decode()
    return config, MachineConfig(host="127.0.0.1", user="bench", client_key=str(folder / "client_key"), host_key=public)


@contextlib.contextmanager
def serving(
    folder: Path, count: int, screen: str, desktops: int, changed: float = CHANGED
) -> Iterator[list[MachineConfig]]:
    """`count` servers with room for `desktops` each, their keys in `folder`; `changed` is a share of the elements.

    Raises ConfigError.
    """
    config, machine = keys(folder, screen, changed)
    command = [sys.executable, "-m", MODULE, msgspec.json.encode(config).decode()]
    with contextlib.ExitStack() as running:
        made = []
        for _ in range(count):
            server = running.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            running.callback(server.kill)
            port = server.stdout.readline() if server.stdout else ""
            if not port:
                raise ConfigError("a server of simulated desktops has ended; its reason is above")
            made.append(msgspec.structs.replace(machine, port=int(port), desktops=desktops))
        yield made


def main(argv: list[str]) -> None:
    """Serve until the parent ends."""
    config = msgspec.json.decode(argv[0], type=GuestsConfig)
    die_with(config.parent)
    raise_file_limit()
    uvloop.run(_listen(config))


if __name__ == "__main__":
    main(sys.argv[1:])
