"""A task in OSWorld's JSON form, typed. A key that is not known here is noted, a step becomes an `UnknownStep`."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, get_args
from urllib.parse import unquote_to_bytes

import msgspec

from runtime.errors import ConfigError

HOME = "/home/user"  # what tasks call the guest's home folder


def in_home(path: str) -> str:
    """`path` relative to the guest's HOME, "" for HOME itself. Raises ValueError for a path outside of it."""
    if path != HOME and not path.startswith(HOME + "/"):
        raise ValueError(f"{path!r} is not below {HOME}")
    return path[len(HOME) + 1 :]


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file to put into the guest; a `data:` URL carries its content."""

    url: str
    path: str


class _Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """A step of set-up; its fields are the `parameters` of a file's step."""


class Download(_Step, frozen=True, tag="download"):
    """Put files into the guest."""

    files: list[Source]


class Open(_Step, frozen=True, tag="open"):
    """Open a file or a folder with its application."""

    path: str


class _OfCommand(_Step, frozen=True):
    """A program and its arguments, or with `shell` a line of shell."""

    command: str | list[str]
    shell: bool | str = False
    stdout: str | None = None


class Launch(_OfCommand, frozen=True, tag="launch"):
    """Start a program and go on."""


class Execute(_OfCommand, frozen=True, tag="execute"):
    """Run a program to its end."""


class Command(_OfCommand, frozen=True, tag="command"):
    """The same under OSWorld's other name."""


class Sleep(_Step, frozen=True, tag="sleep"):
    """Let time pass."""

    seconds: float


class _OfWindow(_Step, frozen=True):
    """Which window."""

    window_name: str
    strict: bool = False
    by_class: bool = False


class ActivateWindow(_OfWindow, frozen=True, tag="activate_window"):
    """Bring a window to the front."""


class CloseWindow(_OfWindow, frozen=True, tag="close_window"):
    """Close a window."""


class _OfTabs(_Step, frozen=True):
    """Pages to show or to close."""

    urls_to_open: list[str] = []
    urls_to_close: list[str] = []


class ChromeOpenTabs(_OfTabs, frozen=True, tag="chrome_open_tabs"):
    """Open pages in the browser."""


class ChromeCloseTabs(_OfTabs, frozen=True, tag="chrome_close_tabs"):
    """Close pages in the browser."""


class Visit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A page that was looked at some time ago, at most ten years."""

    url: Annotated[str, msgspec.Meta(min_length=1, max_length=2048)]
    title: Annotated[str, msgspec.Meta(max_length=500)]
    visit_time_from_now_in_seconds: Annotated[float, msgspec.Meta(ge=0, le=315_360_000)]


class History(_Step, frozen=True, tag="update_browse_history"):
    """Write the browser's history: pages that it shall remember."""

    history: Annotated[list[Visit], msgspec.Meta(max_length=500)]


class UnknownStep(msgspec.Struct, frozen=True):
    """A step that nothing here carries out, or that has not its parameters."""

    type: str
    parameters: dict[str, Any] = {}
    problem: str = ""  # which parameter is wrong


Step = (
    Download | Open | Launch | Execute | Command | Sleep | ActivateWindow | CloseWindow | ChromeOpenTabs
    | ChromeCloseTabs | History | UnknownStep
)  # fmt: skip


def data_url(data: bytes, mime: str = "text/plain") -> str:
    """A URL that carries its content."""
    return f"data:{mime};base64,{b64encode(data).decode('ascii')}"


def data_of(url: str) -> bytes:
    """The content of a `data:` URL. Raises ValueError for any other URL, since desktops have no network."""
    head, comma, body = url.partition(",")
    if not head.startswith("data:") or not comma:
        raise ValueError(f"{url[:60]!r} does not carry its content, and desktops have no network")
    return b64decode(body, validate=True) if head.endswith(";base64") else unquote_to_bytes(body)


def put(files: Iterable[tuple[str, str]]) -> list[Step]:
    """The step that puts files, each a path in the guest and a `data:` URL, there; no step for no file."""
    sources = [Source(url=url, path=path) for path, url in files]
    return [Download(sources)] if sources else []


def launch(*argv: str) -> Launch:
    """The step that starts a program."""
    return Launch(list(argv))


def opened(path: str) -> Open:
    """The step that opens a file or a folder."""
    return Open(path)


def raised(title: str) -> ActivateWindow:
    """The step that brings the window of this title to the front."""
    return ActivateWindow(title)


Getter = dict[str, Any]  # {"type": "vm_file", ...}; its other keys depend on the type


class Evaluator(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How success is decided. With lists, the n-th function compares the n-th result with the n-th expectation."""

    func: str | list[str]
    result: Getter | list[Getter] = {}
    expected: Getter | list[Getter] = {}
    options: Getter | list[Getter] = {}
    conj: str = "and"
    postconfig: list[Step] = []

    @property
    def functions(self) -> list[str]:
        """Their names."""
        return [self.func] if isinstance(self.func, str) else self.func

    def rows(self) -> list[tuple[str, Getter, Getter, Getter]]:
        """Each function with its result, its expectation and its options; {} where nothing is given.

        Raises ValueError where a list has another length than the functions.
        """
        sides = [_each(getattr(self, side), len(self.functions), side) for side in ("result", "expected", "options")]
        return list(zip(self.functions, *sides, strict=True))


def _each(side: Getter | list[Getter], count: int, name: str) -> list[Getter]:
    if not isinstance(side, list):
        return [side] * count
    if not side:
        return [{}] * count
    if len(side) != count:
        raise ValueError(f"evaluator.{name} has {len(side)} entries for {count} functions")
    return side


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One task."""

    id: str
    snapshot: str = ""
    instruction: str
    source: str = ""
    config: list[Step] = []
    trajectory: str = ""
    related_apps: list[str] = []
    evaluator: Evaluator
    proxy: bool = False
    fixed_ip: bool = False
    possibility_of_env_change: str = "low"
    hint: str | None = None
    changes: list[str] = []  # of one's own files: paths below HOME that may change besides those that it judges by
    unknown: dict[str, Any] = {}  # keys of a file that are not known here, by their dotted places

    @property
    def feasible(self) -> bool:
        """Whether it can be done at all; an infeasible one is solved by giving up."""
        return self.evaluator.functions != ["infeasible"]

    @property
    def notes(self) -> list[str]:
        """What its file has besides the known form."""
        return sorted(self.unknown)


def dump(task: Task) -> bytes:
    """The task as indented JSON, without its unknown keys, and without changes where it allows none."""
    plain = msgspec.to_builtins(task)
    del plain["unknown"]
    if not task.changes:
        del plain["changes"]
    plain["config"] = list(map(as_file, task.config))
    if task.evaluator.postconfig:
        plain["evaluator"]["postconfig"] = list(map(as_file, task.evaluator.postconfig))
    return msgspec.json.format(msgspec.json.encode(plain), indent=2)


def as_file(step: Step) -> dict[str, Any]:
    """A step as files have it: its type and its parameters."""
    if isinstance(step, UnknownStep):
        return {"type": step.type, "parameters": step.parameters}
    plain = msgspec.to_builtins(step)
    return {"type": plain.pop("type"), "parameters": plain}


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
    known = set(kind.__struct_fields__)
    unknown.update({f"{place}.parameters.{key}": parameters[key] for key in parameters.keys() - known})
    parameters = {key: value for key, value in parameters.items() if key in known}
    try:
        step: Step = msgspec.convert({**parameters, "type": entry["type"]}, kind)
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
