"""Which code runs here.

Invariant: `runtime`, `policy`, `apis` and `actors` come from one folder. A child host agrees with its parent on all of
`runtime` and on each package's messages, because both sides of the link use them. The packages' names are common words,
so another package of such a name is an error that names it.

Other files are left out of the build on purpose. An edit in a working tree must not stop a run whose host restarts
after it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import sys
from pathlib import Path

import msgspec

from runtime.errors import ConfigError

SHARED_FILE = "messages.py"
PACKAGES = ("runtime", "policy", "apis", "actors")


class Origin(msgspec.Struct, frozen=True):
    """The folder that holds the packages and a digest over the names and contents of the files both sides share."""

    root: str
    build: str


@functools.cache
def check_origin() -> Origin:
    """The origin of this process's code. Raises ConfigError naming the package that comes from elsewhere."""
    root = Path(__file__).resolve().parent.parent
    for package in PACKAGES:
        place = package_folder(package)
        if place != root / package:
            raise ConfigError(
                f"package {package} comes from {place}, not from {root / package}: "
                f"take {place.parent} off PYTHONPATH or uninstall what put it there"
            )
    return Origin(str(root), _build(root))


def package_folder(package: str) -> Path:
    """Where `package` is imported from. Raises ConfigError when it is not there or is no plain package."""
    loaded = sys.modules.get(package)
    spec = loaded.__spec__ if loaded is not None else importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ConfigError(f"package {package} is missing: install computerrl again")
    return Path(spec.origin).resolve().parent


def _build(root: Path) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            if package != "runtime" and path.name != SHARED_FILE:
                continue
            digest.update(f"{path.relative_to(root)}\0".encode())
            digest.update(hashlib.blake2b(path.read_bytes()).digest())
    return digest.hexdigest()
