"""Deploy files by path or by bundled name: the same in a source tree and in an installed wheel."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, cast

import msgspec
import yaml

from actors.cluster.config import typed_yaml
from actors.cluster.config.schema import Deploy, DeployFile
from actors.cluster.config.suggest import hint
from actors.desktop.config import ProviderConfig
from runtime.errors import ConfigError
from runtime.settings import masked

STORED = "deploy.yaml"  # in a run's folder
PROVIDER = "desktops.provider"
_FOLDER = Path(str(resources.files("deploy")))
PLAN = _FOLDER / "entropulse.yaml"  # lies with the deploy files, for `make programme`


def bundled() -> dict[str, Path]:
    """Name -> path of the deploy files that come with the program."""
    return {path.stem: path for path in _deploy_files(_FOLDER)}


def _deploy_files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("*.yaml")) if path.name != PLAN.name]


def locate(name: str) -> Path:
    """The deploy file called `name`: a path, or a bundled file's name. Raises ConfigError with the nearest name."""
    bare = name.removeprefix("./").removeprefix("deploy/").removesuffix(".yaml")
    if Path(name).resolve() == PLAN.resolve() if os.path.isfile(name) else bare == PLAN.stem:
        raise ConfigError(f"{name}: it is a plan, no deploy file: play it with  make programme PLAN=deploy/{PLAN.name}")
    if os.path.isfile(name):
        return Path(name)
    known = bundled()
    if bare in known:
        return known[bare]
    what = "a folder, and no deploy file" if os.path.isdir(name) else "no such deploy file"
    raise ConfigError(f"{name}: {what}; {hint(bare, known, cutoff=0.7)}")


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
    """The plain keys of the deploy file `name`, laid over those of the file it extends. Raises ConfigError."""
    path = locate(name)
    return _laid(path, name, []), path


def _laid(path: Path, name: str, above: list[Path]) -> dict[Any, Any]:
    data = typed_yaml.plain(path, name)
    if data is not None and not isinstance(data, dict):
        raise ConfigError(f"{name}: expected keys and values at the top, got {type(data).__name__}")
    data = data or {}
    base = data.pop("extends", None)
    if base is None:
        return data
    if not isinstance(base, str) or not base:
        raise ConfigError(f"{name}: extends: expected a deploy file's path or name, got {base!r}")
    sibling = path.parent / base
    below = sibling if sibling.is_file() else bundled().get(base.removesuffix(".yaml"))
    if below is None:
        names = [file.name for file in _deploy_files(path.parent) if file != path]
        raise ConfigError(f"{name}: extends: {base}: no such deploy file in {path.parent}; {hint(base, names)}")
    chain = [*above, path.resolve()]
    if below.resolve() in chain:
        circle = " -> ".join(file.name for file in [*chain[chain.index(below.resolve()) :], below])
        raise ConfigError(f"{name}: extends goes in a circle: {circle}")
    under = _laid(below, str(below), chain)
    typed_yaml.build(copy.deepcopy(under), DeployFile, source=str(below))  # what is wrong in it is blamed on it
    return _over(under, data, msgspec.to_builtins(DeployFile()))


def _over(under: dict[Any, Any], data: dict[Any, Any], usual: Any) -> dict[Any, Any]:
    """`data` over `under`: keys of a mapping one by one; lists and a mapping of another `type` as a whole."""
    found = dict(under)
    for key, value in data.items():
        was, default = found.get(key), usual.get(key) if isinstance(usual, dict) else None
        merges = False
        if isinstance(value, dict) and isinstance(was, dict):
            kind = was.get("type", default.get("type") if isinstance(default, dict) else None)
            merges = value.get("type", kind) == kind
        found[key] = _over(cast(dict[Any, Any], was), value, default) if merges else value
    return found


def load(name: str, overrides: Sequence[str] = ()) -> tuple[Deploy, Path]:
    """The deploy file `name` with `--set` overrides. Raises ConfigError."""
    data, path = parsed(name)
    return typed_yaml.build(data, Deploy, overrides, source=name), path


def provider_set(overrides: Sequence[str]) -> ProviderConfig:
    """The provider of desktops that `--set` asks for where there is no deploy file. Raises ConfigError."""
    refuse_other_keys(overrides)
    sets = ["desktops.count=1", "desktops.warm_pool=0", *overrides]
    return typed_yaml.build({}, Deploy, sets, source="--set").desktops.provider


def refuse_other_keys(overrides: Sequence[str]) -> None:
    """Raise ConfigError for the first of `--set` that sets no key of `desktops.provider`."""
    for one in overrides:
        if not f"{one.partition('=')[0].strip()}.".startswith(f"{PROVIDER}."):
            raise ConfigError(f"--set {masked(one)}: without a deploy file it sets keys of {PROVIDER} alone")


def stored(folder: Path, overrides: Sequence[str] = ()) -> Deploy:
    """The settings of the run in `folder`, with `--set` overrides. Raises ConfigError."""
    file = str(folder / STORED)
    try:
        return typed_yaml.build(stored_plain(folder), Deploy, overrides, source=file)
    except ConfigError as error:
        if not str(error).startswith(f"{file}: unknown key"):
            raise
        raise ConfigError(f"{error}; another build wrote this file: take that line out to use the run here") from None


def stored_plain(folder: Path) -> dict[str, Any]:
    """The same as plain values, with every default that there was then written out. Raises ConfigError."""
    file = folder / STORED
    found = typed_yaml.plain(file, str(file))
    if not isinstance(found, dict):
        raise ConfigError(f"{file}: expected keys and values at the top, got {type(found).__name__}")
    return found


def dump(deploy: Deploy) -> str:
    """`deploy` with every default written out, as YAML that `load` reads back."""
    return yaml.safe_dump(msgspec.to_builtins(deploy), sort_keys=False, allow_unicode=True, width=120)
