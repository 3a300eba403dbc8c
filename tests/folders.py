"""A folder for desktops: its path is short, as Unix sockets lie in it, and other users may pass through."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def desk_folder() -> Iterator[str]:
    """The path of a fresh one, that is gone afterwards."""
    with TemporaryDirectory(prefix="crl-t", dir="/run" if os.access("/run", os.W_OK) else None) as folder:
        Path(folder).chmod(0o755)  # desktops have users of their own
        yield folder
