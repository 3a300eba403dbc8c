"""Deploy files by path or by bundled name.

Invariant: the same name means the same file in a source tree and in an installed wheel, from any working folder.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import yaml

from actors.cluster.config import typed_yaml
from actors.cluster.config.schema import Deploy, refuse_expert_keys
from actors.cluster.config.suggest import hint
from runtime.errors import ConfigError


def bundled() -> dict[str, Path]:
    """Name -> path of the deploy files that come with the program."""
    folder = Path(str(resources.files("deploy")))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def locate(name: str) -> Path:
    """The deploy file called `name`: a path, or a bundled file's name. Raises ConfigError with the nearest name."""
    path = Path(name)
    if os.path.isfile(path):
        return path
    known = bundled()
    bare = name.removeprefix("./").removeprefix("deploy/").removesuffix(".yaml")
    if bare in known:
        return known[bare]
    raise ConfigError(f"{name}: no such deploy file; {hint(bare, known)}")


def lasting(name: str) -> str:
    """`name`, or where it is a path, what means that file from any folder."""
    return str(Path(name).resolve()) if os.path.isfile(name) else name


def same(one: str, other: str) -> bool:
    """Whether both names mean one deploy file; a file that is gone is known by its name alone."""
    try:
        return one == other or locate(one).resolve() == locate(other).resolve()
    except ConfigError:
        return False


def parsed(name: str) -> tuple[dict[Any, Any], Path]:
    """The plain keys and values of the deploy file `name`. Raises ConfigError."""
    path = locate(name)
    data = typed_yaml.plain(path, name)
    if data is not None and not isinstance(data, dict):
        raise ConfigError(f"{name}: expected keys and values at the top, got {type(data).__name__}")
    return data or {}, path


def load(name: str, overrides: Sequence[str] = ()) -> tuple[Deploy, Path]:
    """The deploy file `name` with `--set` overrides; of one with arms and seeds what they share. Raises ConfigError."""
    data, path = parsed(name)
    data = {key: value for key, value in data.items() if key not in ("arms", "seeds")}
    deploy = typed_yaml.build(data, Deploy, overrides, source=name)
    refuse_expert_keys(deploy, name)
    return deploy, path


def dump(deploy: Deploy) -> str:
    """`deploy` with every default written out, as YAML that `load` reads back."""
    return yaml.safe_dump(msgspec.to_builtins(deploy), sort_keys=False, allow_unicode=True)
