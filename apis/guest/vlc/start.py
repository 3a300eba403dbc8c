"""How VLC is started on a desktop: on its loopback only, with the session's own password, however it is started."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from pathlib import Path

PAGES = str(Path(__file__).with_name("http"))  # served in place of VLC's own web interface
PASSWORD_BYTES = 16
WRITE_S = 10.0  # for VLC to write its file
_HEAD = re.compile("\ufeff?###\n###  vlc ")  # of a file that VLC has written
_NAME = re.compile(r"#?([a-z0-9][a-z0-9_-]*)=")


def config_file() -> Path:
    """VLC's settings."""
    return Path(os.environ["HOME"], ".config", "vlc", "vlcrc")


def access() -> tuple[int, str]:
    """The session's port and password; made when first asked for."""
    place = Path(os.environ["XDG_RUNTIME_DIR"], "vlc.json")
    try:
        port, password = json.loads(place.read_text())
    except FileNotFoundError:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        password = os.urandom(PASSWORD_BYTES).hex()
        with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump([port, password], file)
    return int(port), str(password)


def _listening() -> dict[str, str]:
    port, password = access()
    return {
        "extraintf": "http",
        "http-host": "127.0.0.1",
        "http-port": str(port),
        "http-password": password,
        "http-src": PAGES,
    }


def reachable(argv: list[str]) -> list[str]:
    """`argv`, which starts VLC, made to listen."""
    return [argv[0], *(f"--{name}={value}" for name, value in _listening().items()), *argv[1:]]


def prepare() -> None:
    """Have every VLC of this session listen."""
    write_settings(_listening())


def write_settings(values: dict[str, str]) -> None:
    """Put values into VLC's file, in the place of older ones; all other lines stay."""
    place = config_file()
    try:
        lines = place.read_text(encoding="utf-8", errors="surrogateescape").split("\n")
    except FileNotFoundError:
        lines = []
    left = dict(values)
    for at, line in enumerate(lines):
        name = _NAME.match(line)
        if name and name[1] in left:
            lines[at] = f"{name[1]}={left.pop(name[1])}"
    end = len(lines) - (lines[-1:] == [""])
    lines[end:end] = [f"{name}={value}" for name, value in left.items()]
    place.parent.mkdir(parents=True, exist_ok=True)
    new = place.with_name("vlcrc.new")
    text = "\n".join(lines)
    new.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8", errors="surrogateescape")
    new.chmod(0o600)
    new.replace(place)


def complete() -> None:
    """Have VLC write its whole file, every setting at its default, where it has not yet; values in it are kept.

    Raises OSError and subprocess.SubprocessError where VLC does not.
    """
    place = config_file()
    try:
        if _HEAD.match(place.read_text(encoding="utf-8", errors="replace")):
            return
    except FileNotFoundError:
        place.parent.mkdir(parents=True, exist_ok=True)
    kept, whole = changed_settings(), place.with_name("vlcrc.whole")
    try:
        whole.unlink(missing_ok=True)
        command = ["vlc", "--intf", "dummy", "--config", str(whole), "--reset-config", "vlc://quit"]
        subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=WRITE_S)
        lines = whole.read_text(encoding="utf-8", errors="replace").splitlines()
        named = {setting[1] for line in lines if (setting := _NAME.match(line))}
        whole.replace(place)
    finally:
        whole.unlink(missing_ok=True)
    write_settings({name: value for name, value in kept.items() if name in named})


def changed_settings() -> dict[str, str]:
    """The values in VLC's file that are not at their defaults."""
    try:
        text = config_file().read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return {}
    return dict(re.findall(r"^([a-z0-9][a-z0-9_-]*)=(.*)$", text, re.MULTILINE))
