"""Unix sockets in folders with long names.

Invariant: a socket lies in the folder that the caller names, though the kernel takes only 107 bytes of path. The
folder is named through `/proc/self/fd`.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from runtime.errors import ConfigError


def listen_unix(path: Path) -> socket.socket:
    """A listening socket at `path`, open to its owner only. Raises ConfigError when a process serves there already."""
    if path.exists():
        try:
            connect_unix(path, 1.0).close()
        except OSError:
            path.unlink()  # left by a process that was killed
        else:
            raise ConfigError(f"{path} is served by a running process")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sock.bind(f"/proc/self/fd/{folder}/{path.name}")
        path.chmod(0o600)
        sock.listen(16)
    except OSError as error:
        sock.close()
        raise ConfigError(f"can't listen at {path}: {error}") from error
    finally:
        os.close(folder)
    sock.setblocking(False)
    return sock


def connect_unix(path: Path, timeout_s: float) -> socket.socket:
    """A blocking socket connected to `path`. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(timeout_s)
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sock.connect(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
    except OSError:
        sock.close()
        raise
    return sock
