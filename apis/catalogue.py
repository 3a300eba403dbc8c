"""The functions of applications: the prompt, the grammar and the tests read `TOOLS`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from apis.applications import BY_FOLDER
from apis.apps.application import OWN, modules_brought
from apis.functions.declaration import Function, Tool, read
from apis.functions.values import fit

_FILES = {folder: Path(__file__).with_name("apps") / f"{folder}.yaml" for folder in OWN}
_DECLARED = {folder: read(file) for folder, file in _FILES.items() if file.exists()}
_DECLARED |= {folder: module.FUNCTIONS for folder, module in modules_brought("functions")}
TOOLS: dict[str, tuple[Function, ...]] = {  # application -> its functions
    BY_FOLDER[folder].name: functions for folder, functions in _DECLARED.items()
}

_BY_NAME = {f"{function.owner}.{function.name}": function for functions in TOOLS.values() for function in functions}
_APP_OF = {f"{function.owner}.{function.name}": app for app, functions in TOOLS.items() for function in functions}


def declared(owner: str, name: str) -> Function:
    """The declaration of an application's function. Raises LookupError."""
    return _BY_NAME[f"{owner}.{name}"]


def app_of(dotted: str) -> str | None:
    """The application that a function like "CalcTools.save" belongs to; None where there is none."""
    return _APP_OF.get(dotted)


def call(owner: str, name: str, **arguments: Any) -> Tool:
    """The action of calling a function, as the grammar would make it.

    Raises LookupError for a function that no application has, TypeError for an argument that is unknown or missing,
    and Unfit for one of the wrong kind.
    """
    function = declared(owner, name)
    unknown = set(arguments) - {param.name for param in function.params}
    missing = {param.name for param in function.params if param.required} - set(arguments)
    if unknown or missing:
        raise TypeError(f"{function.signature}: wrong arguments {', '.join(sorted(unknown | missing))}")
    values = {p.name: fit(p, arguments[p.name]) if p.name in arguments else p.default for p in function.params}
    return Tool(owner=owner, name=name, arguments=values)
