"""The functions of applications: the prompt, the grammar and the tests read `TOOLS`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from apis import built
from apis.applications import APP_NAMES, BY_FOLDER, OWN, bring_built, modules_brought
from apis.functions.declaration import Function, Tool, read
from apis.functions.values import fitted
from runtime.errors import ConfigError

_FILES = {folder: Path(__file__).with_name("apps") / f"{folder}.yaml" for folder in OWN}
_DECLARED = {folder: read(file) for folder, file in _FILES.items() if file.exists()}
_DECLARED |= {folder: module.FUNCTIONS for folder, module in modules_brought("functions")}
TOOLS: dict[str, tuple[Function, ...]] = {  # application -> its functions
    BY_FOLDER[folder].name: functions for folder, functions in _DECLARED.items()
}
_BY_NAME: dict[str, tuple[str, Function]] = {}  # with the application


def _index() -> None:
    _BY_NAME.clear()
    _BY_NAME.update({f"{one.owner}.{one.name}": (app, one) for app, functions in TOOLS.items() for one in functions})


def _add(folders: Mapping[Path, built.Api]) -> None:
    """Add the functions of accepted folders to applications that are here. Raises ConfigError."""
    for folder, api in folders.items():
        bring_built(api.app, api.argv, api.windows)
        owners = {each.owner: app for app, functions in TOOLS.items() for each in functions}
        if api.app not in APP_NAMES or owners.get(api.owner, api.app) != api.app or api.owner == "Agent":
            raise ConfigError(f"{folder}: {api.owner} can't have functions of {api.app}")
        here = TOOLS.get(api.app, ())
        if taken := sorted({each.name for each in here} & {each.name for each in api.functions}):
            raise ConfigError(f"{folder}: {api.app} has a function {taken[0]} already")
        TOOLS[api.app] = (*here, *api.declared())
    _index()


def use(named: Sequence[str]) -> None:
    """Add the functions of folders, each DIR@DIGEST, here and in all processes that this one starts.

    Raises ConfigError for one that is not accepted as it is, or has another digest.
    """
    _add(built.use(named))


_add(built.folders())


@contextmanager
def shown(app: str, functions: Sequence[Function]) -> Iterator[None]:
    """While the block lasts, `app` has these functions, too."""
    before = TOOLS.get(app, ())
    TOOLS[app] = (*before, *functions)
    _index()
    try:
        yield
    finally:
        TOOLS[app] = before
        _index()


def declared(owner: str, name: str) -> Function:
    """The declaration of an application's function. Raises LookupError."""
    return _BY_NAME[f"{owner}.{name}"][1]


def app_of(dotted: str) -> str | None:
    """The application that a function like "CalcTools.save" belongs to; None where there is none."""
    return _BY_NAME[dotted][0] if dotted in _BY_NAME else None


def call(owner: str, name: str, **arguments: Any) -> Tool:
    """The action of calling a function, as the grammar would make it.

    Raises LookupError for a function that no application has, Unfit for wrong arguments.
    """
    return Tool(owner=owner, name=name, arguments=fitted(declared(owner, name), arguments))
