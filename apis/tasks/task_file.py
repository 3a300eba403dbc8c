"""Reads task files as people publish them.

Invariant: a file either loads or is refused in one line that names its key. What has no meaning here is kept and noted,
never dropped without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from apis.tasks.osworld import Evaluator, Getter, Step, Task, UnknownStep
from runtime.errors import ConfigError

FILE_MAX = 4 << 20  # bytes of a task file
_KINDS = {kind.__struct_config__.tag: kind for kind in get_args(Step) if kind is not UnknownStep}
_KNOWN = {field.name for field in msgspec.structs.fields(Task)} - {"unknown"}
_JUDGED = {field.name for field in msgspec.structs.fields(Evaluator)}


def load(text: bytes) -> Task:
    """A task from JSON. Raises ConfigError that names the key."""
    if len(text) > FILE_MAX:
        raise ConfigError(f"it has {len(text)} bytes, a task file has at most {FILE_MAX}")
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"it is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError("it is no JSON object")
    missing = [name for name in ("id", "instruction", "evaluator") if name not in found]
    if missing:
        raise ConfigError(f"{missing[0]}: it is missing; a task file has an id, an instruction and an evaluator")
    unknown = {name: value for name, value in found.items() if name not in _KNOWN}
    evaluator = _evaluator(found["evaluator"], unknown)
    return Task(
        id=_text(found, "id"),
        snapshot=_text(found, "snapshot"),
        instruction=_text(found, "instruction"),
        source=_text(found, "source"),
        config=_steps(found, "config", "config", unknown),
        trajectory=_text(found, "trajectory"),
        related_apps=_texts(found.get("related_apps")),
        evaluator=evaluator,
        proxy=_flag(found.get("proxy")),
        fixed_ip=_flag(found.get("fixed_ip")),
        possibility_of_env_change=_text(found, "possibility_of_env_change") or "low",
        hint=None if found.get("hint") is None else _text(found, "hint"),
        changes=_texts(found.get("changes")),
        unknown=unknown,
    )


def _text(found: Mapping[str, Any], name: str) -> str:
    """A text; a list of texts where one was meant is joined."""
    value = found.get(name)
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = " ".join(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str | None):
        raise ConfigError(f"{name}: a text is expected, not {type(value).__name__}")
    return value or ""


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value] if value else []
    return [str(part) for part in value] if isinstance(value, list) else []


def _flag(value: Any) -> bool:
    return value is True or (isinstance(value, str) and value.lower() == "true")


def _steps(found: Mapping[str, Any], name: str, place: str, unknown: dict[str, Any]) -> list[Step]:
    listed = found.get(name)
    if listed is None:
        return []
    if not isinstance(listed, list):
        raise ConfigError(f"{place}: a list of steps is expected, not {type(listed).__name__}")
    return [_step(entry, f"{place}.{number}", unknown) for number, entry in enumerate(listed)]


def _step(entry: Any, place: str, unknown: dict[str, Any]) -> Step:
    if not isinstance(entry, dict) or not isinstance(entry.get("type"), str):
        raise ConfigError(f"{place}: a step is an object with a type")
    parameters = entry.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise ConfigError(f"{place}.parameters: an object is expected")
    unknown.update({f"{place}.{key}": value for key, value in entry.items() if key not in ("type", "parameters")})
    kind = _KINDS.get(entry["type"])
    if kind is None:
        return UnknownStep(entry["type"], parameters)
    wanted = next(field.type for field in msgspec.structs.fields(kind) if field.name == "parameters")
    if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
        known = {field.name for field in msgspec.structs.fields(wanted)}
        unknown.update({f"{place}.parameters.{key}": parameters[key] for key in parameters.keys() - known})
        parameters = {key: value for key, value in parameters.items() if key in known}
    try:
        step: Step = msgspec.convert({"type": entry["type"], "parameters": parameters}, kind)
    except msgspec.ValidationError as error:
        return UnknownStep(entry["type"], parameters, str(error))
    return step


def _evaluator(found: Any, unknown: dict[str, Any]) -> Evaluator:
    if not isinstance(found, dict):
        raise ConfigError(f"evaluator: an object is expected, not {type(found).__name__}")
    functions = found.get("func")
    many = isinstance(functions, list) and all(isinstance(name, str) for name in functions) and functions
    if not isinstance(functions, str) and not many:
        raise ConfigError("evaluator.func: the name of a function is expected, or a list of names")
    unknown.update({f"evaluator.{key}": value for key, value in found.items() if key not in _JUDGED})
    evaluator = Evaluator(
        func=functions if isinstance(functions, str) else list(functions or ()),
        result=_side(found, "result"),
        expected=_side(found, "expected"),
        options=_side(found, "options"),
        conj=_text(found, "conj") or "and",
        postconfig=_steps(found, "postconfig", "evaluator.postconfig", unknown),
    )
    if evaluator.conj not in ("and", "or"):
        raise ConfigError(f"evaluator.conj: it is and, or or, not {evaluator.conj!r}")
    try:
        evaluator.rows()
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return evaluator


def _side(found: Mapping[str, Any], name: str) -> Getter | list[Getter]:
    value = found.get(name)
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    if isinstance(value, list) and all(isinstance(entry, dict | None) for entry in value):
        return [entry or {} for entry in value]
    raise ConfigError(f"evaluator.{name}: an object is expected, or a list of objects")
