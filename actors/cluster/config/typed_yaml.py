"""YAML into typed configuration, with errors that a person can act on.

Invariant: every key of a file that is accepted is known, and every value has its declared type. Else one `ConfigError`
of one line names the source, the full path, what was expected and the nearest right key.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from msgspec import inspect

from actors.cluster.config.suggest import hint, nearest
from runtime import disk
from runtime.errors import ConfigError
from runtime.settings import items, masked, out_of_bounds, parts

T = TypeVar("T")

_FLOAT = re.compile(
    r"^[-+]?(?:\d[\d_]*\.?[\d_]*(?:[eE][-+]?\d+)|\d[\d_]*\.[\d_]*|\.\d[\d_]*(?:[eE][-+]?\d+)?|\.inf|\.nan)$"
)
_AT = re.compile(r"^(?P<what>.*?)(?: - at `(?P<at>.*)`)?$", re.DOTALL)


DEEPEST = 64  # levels of a file; what describes a run, a suite or a task has no ten
MOST = 50_000  # values of a file
TOO_DEEP = "nested too deeply"
LONGEST = 200  # characters of a --set that a message repeats


class _Loader(yaml.CSafeLoader):
    """SafeLoader that reads 2e-4 as a number, a date as a text, and no key twice or that is no text."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Check the keys of `node`."""
        seen: set[str] = set()
        for key_node, _ in node.value:
            key, line = str(key_node.value), key_node.start_mark.line + 1
            if key in seen:
                raise ConfigError(f"line {line}: key {key:.80} is written twice")
            seen.add(key)
            if (kind := key_node.tag.rpartition(":")[2]) != "str":
                raise ConfigError(f"line {line}: key {key:.80} is no text but a {kind}: put it in quotes")


def _refuse_bomb(text: str) -> None:
    """Raise ConfigError where `text` is nested deeper than `DEEPEST`, has more than `MOST` values, or an alias."""
    depth = count = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent):
            line = f"line {event.start_mark.line + 1}: " if event.start_mark else ""
            raise ConfigError(f"{line}*{event.anchor}: write out what it names, aliases are not read")
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.CollectionStartEvent | yaml.ScalarEvent):
            count += 1
            depth += isinstance(event, yaml.CollectionStartEvent)
        if depth > DEEPEST:
            raise ConfigError(TOO_DEEP)
        if count > MOST:
            raise ConfigError(f"it has more than {MOST} values")


def _whole(loader: _Loader, node: yaml.ScalarNode) -> int:
    try:
        return int(loader.construct_yaml_int(node))
    except ValueError:  # Python makes no int of thousands of digits
        what = node.value if len(node.value) <= 20 else f"{node.value[:20]}..."
        line = node.start_mark.line + 1
        raise ConfigError(f"line {line}: {what} is no whole number, or has too many digits") from None


_Loader.add_constructor("tag:yaml.org,2002:int", _whole)
# `on` and `off` are words, as in YAML 1.2.
_NO_TAGS = dict.fromkeys("oO", (":timestamp", ":bool"))
_Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in found if not tag.endswith(_NO_TAGS.get(first, (":timestamp",)))]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


def parse_yaml(text: str, source: str) -> Any:
    """YAML text as plain values. Raises ConfigError naming `source` and the line."""
    try:
        _refuse_bomb(text)
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:  # PyYAML's own, of a tag or a lone surrogate
        raise ConfigError(f"{source}: a value is no text, or not of its tag: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        problem = (getattr(error, "problem", None) or "not YAML").replace("any token", "a value (a tab, @, %)")
        raise ConfigError(f"{source}: {where}{problem}") from None


def read(path: Path, root: type[T], overrides: Sequence[str] = (), *, name: str | None = None) -> T:
    """The file at `path` with `--set` `overrides` applied, as a `root`. Raises ConfigError."""
    source = name or str(path)
    return build(plain(path, source), root, overrides, source=source)


def plain(path: Path, source: str) -> Any:
    """The YAML file at `path` as plain values. Raises ConfigError naming `source`."""
    try:
        text = disk.read_text(path)
    except OSError as error:
        raise ConfigError(f"{source}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source}: cannot be read: {error}") from None
    return parse_yaml(text, source)


def build(data: Any, root: type[T], overrides: Sequence[str] = (), *, source: str) -> T:
    """Plain `data` with `overrides` applied, as a `root`; `data` changes. Raises ConfigError."""
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigError(f"{source}: expected keys and values at the top, got {type(data).__name__}")
    sources: dict[str, str] = {}
    kind: type = root
    for override in overrides:
        path, equals, value = (word.strip() for word in override.partition("="))
        # A message repeats the flag, of thousands of characters the first ones.
        who = masked(override)
        who = f"--set {who if len(who) <= LONGEST else who[:LONGEST] + '...'}"
        if not equals or not all(path.split(".")):
            raise ConfigError(f"{who}: expected path=value, for example run.seed=7")
        _place(data, path, parse_yaml(value, who) if value else _nothing(_shape(kind), path), who)
        sources[path] = who
    for at, wrong in _wrong(data, _shape(kind), "", paths(kind)):
        raise ConfigError(f"{_blame(at, sources, source)}: {wrong}")
    try:
        return msgspec.convert(data, root)
    except ConfigError as error:  # of a struct's own check; it begins with the path
        at = str(error).partition(" ")[0].rstrip(":")
        raise ConfigError(f"{_blame(at, sources, source)}: {error}") from None
    except msgspec.ValidationError as error:
        found = _AT.match(str(error))
        what, at = (found["what"], found["at"] or "") if found else (str(error), "")
        at = re.sub(r"\[(\d+)\]", r".\1", at.removeprefix("$")).removeprefix(".")
        what = (what[:1].lower() + what[1:]).replace("`", "").replace(" | ", " or ").replace("bool", "true or false")
        raise ConfigError(f"{_blame(at, sources, source)}: {at + ': ' if at else ''}{what}") from None


@functools.lru_cache(maxsize=64)
def _shape(root: type) -> inspect.Type:
    return inspect.type_info(root)


@functools.lru_cache(maxsize=64)
def paths(root: type) -> tuple[str, ...]:
    """Every settable path below `root`, in order of declaration."""
    return tuple(_paths(_shape(root), ""))


def _paths(shape: inspect.Type, at: str) -> Iterator[str]:
    structs = [part for part in parts(shape) if isinstance(part, inspect.StructType)]
    if not structs:
        yield at
        return
    seen: set[str] = set()
    for struct in structs:
        for field in struct.fields:
            for path in _paths(field.type, _join(at, field.encode_name)):
                if path not in seen:
                    seen.add(path)
                    yield path


def _join(at: str, key: object) -> str:
    return f"{at}.{key}" if at else str(key)


def _blame(at: str, sources: dict[str, str], source: str) -> str:
    """Which source set `at`: the last --set on it, above it or below it, else the file."""
    for path in reversed(sources):
        if at == path or at.startswith(path + ".") or path.startswith(at + "."):
            return sources[path]
    return source


def _nothing(shape: inspect.Type, path: str) -> str | None:
    """What nothing behind = means: null where the key takes null and no text, else the empty text."""
    there = [shape]
    for name in path.split("."):
        structs = [part for one in there for part in parts(one) if isinstance(part, inspect.StructType)]
        there = [field.type for struct in structs for field in struct.fields if field.encode_name == name]
    kinds = {type(part) for one in there for part in parts(one)}
    return None if inspect.NoneType in kinds and not kinds & {inspect.StrType, inspect.LiteralType} else ""


def _place(data: dict[Any, Any], path: str, value: Any, who: str) -> None:
    def item(key: str) -> int | None:
        """Which item of a list `key` numbers; of too many digits, or of raised ones, Python makes no int."""
        numbers = key.isdecimal() and len(key) <= len(str(len(here))) and int(key) < len(here)
        return int(key) if numbers else None

    *parents, last = path.split(".")
    here: Any = data
    for done, key in enumerate(parents):
        child = None
        if isinstance(here, list) and (at := item(key)) is not None:
            child = here[at]
        elif isinstance(here, dict):
            child = here.get(key)
            if child is None:
                child = here[key] = {}
        if not isinstance(child, dict | list):
            raise ConfigError(f"{who}: {'.'.join(parents[: done + 1])} holds no keys of its own")
        here = child
    if isinstance(here, list):
        if (at := item(last)) is None:
            raise ConfigError(f"{who}: {'.'.join(parents)} is a list of {len(here)}, it has no item {last}")
        here[at] = value
    else:
        here[last] = value


def _wrong(data: Any, shape: inspect.Type, at: str, known: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Where `data` has an unknown key, or a kind, choice or number that `shape` has not, and what to say of it.

    A mapping that leaves its usual `type` out gets it. `known` are all settable paths.
    """
    shapes = parts(shape)
    structs = [part for part in shapes if isinstance(part, inspect.StructType)]
    if structs and isinstance(data, dict):
        struct, tag, tags = structs[0], structs[0].tag_field or "type", [str(one.tag) for one in structs]
        if len(structs) > 1:
            if str(data.get(tag)) not in tags:
                full, got = _join(at, tag), f"got {data[tag]}" if tag in data else "it is missing"
                yield full, f"{full}: {got}; {hint(str(data.get(tag, '')), tags)}"
                return
            struct = structs[tags.index(str(data[tag]))]
        fields = {field.encode_name: field for field in struct.fields}
        for key, value in data.items():
            if key in fields:
                _add_kind(value, fields[key])
                yield from _wrong(value, fields[key].type, _join(at, key), known)
            elif key != struct.tag_field:
                full = _join(at, key)
                kinds = [str(one.tag) for one in structs if any(field.encode_name == key for field in one.fields)]
                right = f"{tag} {struct.tag} has none, {tag} {' or '.join(kinds)} has it"
                yield full, f"unknown key {full}; {right if kinds else _right_key(full, list(fields), at, known)}"
    elif not isinstance(data, dict | list):
        for path, value, why in out_of_bounds(data, shape, at):
            yield path, f"{path} is {value}: {why}"
        yield from _no_choice(data, shapes, at)
        if structs and structs[0].tag_field and data is not None:
            near = hint(str(data), [str(part.tag) for part in structs])
            yield at, f"{at}: got {data}; its kind is set by {_join(at, structs[0].tag_field)}; {near}"
    for part in shapes:
        for key, value, its in items(data, part):
            yield from _wrong(value, its, _join(at, key), known)


def _add_kind(value: Any, field: inspect.Field) -> None:
    usual = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    config = usual.__struct_config__ if isinstance(usual, msgspec.Struct) else None
    if isinstance(value, dict) and config is not None and config.tag_field is not None:
        value.setdefault(config.tag_field, config.tag)


def _no_choice(data: Any, parts: tuple[inspect.Type, ...], at: str) -> Iterator[tuple[str, str]]:
    choices: list[str] = []
    for part in parts:
        if isinstance(part, inspect.EnumType):
            choices += [str(member.value) for member in part.cls]
        elif isinstance(part, inspect.LiteralType):
            choices += [str(value) for value in part.values]
        elif not isinstance(part, inspect.NoneType):
            return
    optional = data is None and any(isinstance(part, inspect.NoneType) for part in parts)
    if choices and str(data) not in choices and not optional:
        yield at, f"{at}: got {data}; {hint(str(data), [one or repr(one) for one in choices])}"


def _right_key(full: str, siblings: list[str], at: str, known: tuple[str, ...]) -> str:
    word, by_name = full.rpartition(".")[2], {path.rpartition(".")[2]: path for path in reversed(known)}
    below = {path.rpartition(".")[2]: path for path in reversed(known) if at and path.startswith(f"{at}.")}
    # Who names a section means one of its keys: only what is all but equal is looked for elsewhere.
    far = 0.8 if at else 0.6
    for options, cutoff in (({one: _join(at, one) for one in siblings}, 0.6), (below, 0.8), (by_name, far)):
        if (best := nearest(word, options, cutoff=cutoff)) is not None:
            return f"did you mean {options[best]}?"
    return hint(word, siblings, shown=len(siblings))
