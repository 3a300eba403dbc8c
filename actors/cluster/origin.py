"""Which code is running.

Invariant: all import packages come from one folder; a package of the same name from elsewhere is named, not used.
"""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

from runtime.errors import ConfigError

PACKAGES = ("actors", "apis", "deploy", "policy", "runtime")


def root() -> Path:
    """The folder that holds every package. Raises ConfigError naming an intruder or a missing package."""
    here = Path(__file__).resolve().parents[2]
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        places = [Path(place).resolve() for place in (spec.submodule_search_locations or [])] if spec else []
        if not places:
            raise ConfigError(f"package {name} is missing beside {here}: install computerrl again")
        for place in places:
            if place != here / name:
                raise ConfigError(f"package {name} comes from {place}, not from {here}: another project hides it")
    return here


def build_id() -> str:
    """A digest of every source file of the packages; equal builds are equal code."""
    base = root()
    digest = hashlib.blake2b(digest_size=8)
    for name in PACKAGES:
        for path in sorted((base / name).rglob("*")):
            if path.suffix in {".py", ".yaml", ".sh", ".json", ".txt", ".tmpl"} and path.is_file():
                digest.update(str(path.relative_to(base)).encode() + b"\0")
                digest.update(hashlib.blake2b(path.read_bytes(), digest_size=16).digest())
    return digest.hexdigest()
