"""What deploy files may say, read from the classes they are checked against, and what one comes to."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable, Iterator
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from actors.cluster import output
from actors.cluster.config.lanes import Lanes
from actors.cluster.config.schema import Deploy, DeployFile
from actors.cluster.config.suggest import nearest
from actors.entropulse.config import EntropulseConfig
from actors.learner.config import OPTIONS, RlConfig
from actors.sampler.config import SglangConfig
from apis.actions.spaces import MEANING
from runtime.errors import ConfigError
from runtime.settings import ADVANCED

_PLAIN: dict[Any, str] = {
    str: "text", int: "whole number", float: "number", bool: "true | false", NoneType: "null", Any: "value",
}  # fmt: skip


class Key(msgspec.Struct, frozen=True):
    """One of them; of an entry of a list it is `list[].key`."""

    key: str
    type: str
    default: str | None  # as YAML has it; None: it must be said
    advanced: bool  # few users need it
    meaning: str


def command(args: argparse.Namespace) -> int:
    """`keys`: print those that are asked for; 0."""
    if args.schema:
        if args.word or args.all:
            args.parser.error("--schema is of all keys: leave WORD and --all out")
        output.document(schema())
        return 0
    known = of_deploy()
    shown = matching(args.word, known) if args.word else [one for one in known if args.all or not one.advanced]
    if not shown:
        near = nearest(args.word, [part for one in known for part in (one.key, *one.key.replace("_", ".").split("."))])
        what = f"did you mean {near}?" if near else "--all lists them all"
        raise ConfigError(f"{args.word}: no key has it in its name or meaning; {what}")
    if args.json:
        output.document(shown)
        return 0
    for one in shown:
        output.line(described(one, min(108, output.columns())))
    if not args.word and not args.all:
        output.line(f"\n{len(known) - len(shown)} more with --all")
    return 0


def of_deploy() -> list[Key]:
    """All keys, in order of declaration. What the entries of several lists share is printed with the first list."""
    return list(_of(DeployFile, "", {}))


def _of(struct: type[msgspec.Struct], at: str, seen: dict[type, str], chosen: str = "") -> Iterator[Key]:
    for field in msgspec.structs.fields(struct):
        key = f"{at}.{field.encode_name}" if at else field.encode_name
        parts = list(_parts(field.type))
        entries = [inner for part in parts if get_origin(part) is list for inner in _parts(get_args(part)[0])]
        structs = [inner for inner in entries if _is_struct(inner)]
        same = next((seen[one] for one in structs if one in seen), "")
        if not any(map(_is_struct, parts)):
            said, advanced = _said(field.type)
            shared = f"Its entries are those of {same}." if same else ""
            meaning = " ".join(filter(None, (chosen, said, shared)))
            yield Key(key, " or ".join(map(_called, parts)), _default(field), advanced, meaning)
        yield from _chosen([part for part in parts if _is_struct(part)], key, seen, chosen, _default(field))
        if not same:
            seen.update(dict.fromkeys(structs, key))
            yield from _chosen(structs, f"{key}[]", seen, chosen, None)


def _chosen(
    structs: list[type[msgspec.Struct]], at: str, seen: dict[type, str], chosen: str, default: str | None
) -> Iterator[Key]:
    """The keys of what lies at `at`, which is one of `structs`; which, its `type` says where there are several."""
    tags = [str(one.__struct_config__.tag) for one in structs]
    if len(structs) > 1:
        usual = None if default is None else msgspec.json.decode(default)["type"]
        yield Key(f"{at}.type", " | ".join(tags), usual, advanced=at.endswith("[]"), meaning="Chooses which it is.")
    for one, tag in zip(structs, tags, strict=True):
        yield from _of(one, at, seen, f"({tag})" if len(structs) > 1 else chosen)


def _said(annotation: Any) -> tuple[str, bool]:
    metas = [one for one in getattr(annotation, "__metadata__", ()) if isinstance(one, msgspec.Meta)]
    said = next((one for one in metas if one.description), msgspec.Meta(description=""))
    return said.description or "", bool((said.extra or {}).get(ADVANCED))


def _parts(shape: Any) -> Iterator[Any]:
    if get_origin(shape) is Annotated:
        yield from _parts(get_args(shape)[0])
    elif get_origin(shape) in (Union, UnionType):
        for part in get_args(shape):
            yield from _parts(part)
    else:
        yield shape


def _is_struct(shape: Any) -> bool:
    return isinstance(shape, type) and issubclass(shape, msgspec.Struct)


def _called(shape: Any) -> str:
    if get_origin(shape) is Literal:
        return " | ".join(map(str, get_args(shape)))
    if isinstance(shape, type) and issubclass(shape, Enum):
        return " | ".join(str(one.value) for one in shape)
    if get_origin(shape) in (list, dict, tuple):
        return "mapping" if get_origin(shape) is dict else "list"
    return _PLAIN[shape]


def _default(field: msgspec.structs.FieldInfo) -> str | None:
    if field.default_factory is not msgspec.NODEFAULT:
        value: Any = field.default_factory()
    elif field.default is not msgspec.NODEFAULT:
        value = field.default
    else:
        return None
    plain = msgspec.to_builtins(value)
    return plain if isinstance(plain, str) and plain else msgspec.json.encode(plain).decode()


def matching(word: str, keys: Iterable[Key]) -> list[Key]:
    """Those that have `word` in them, or in what they mean."""
    low = word.lower()
    return [one for one in keys if low in one.key.lower() or low in one.meaning.lower()]


def described(one: Key, columns: int) -> str:
    """Name, default and type on a line, and what it means on the next ones, of at most `columns` characters."""
    default = "(no default)" if one.default is None else f"= {one.default}"
    head = f"{one.key} {default}   {one.type}"
    return "\n".join([head, *textwrap.wrap(one.meaning, columns, initial_indent="    ", subsequent_indent="    ")])


def schema() -> dict[str, Any]:
    """The JSON schema of deploy files, for editors that complete and check them."""
    found = msgspec.json.schema(DeployFile)
    definitions = found["$defs"]
    for definition in definitions.values():  # what a section's keys say is not said once more of the section
        for shown in definition.get("properties", {}).values():
            if isinstance(shown.get("default"), dict) and ("$ref" in shown or "anyOf" in shown):
                del shown["default"]
    for default in _defaults(DeployFile()):
        # A mapping that leaves `type` out is of the default one.
        config = default.__struct_config__
        if config.tag is not None:
            definition = definitions[type(default).__name__]
            definition["required"] = [name for name in definition.get("required", []) if name != config.tag_field]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "ComputerRL deploy file", **found}


def _defaults(section: msgspec.Struct) -> Iterator[msgspec.Struct]:
    yield section
    for name in section.__struct_fields__:
        if isinstance(inner := getattr(section, name), msgspec.Struct):
            yield from _defaults(inner)


def summary(deploy: Deploy, lanes: Lanes) -> list[tuple[str, str]]:
    """Label and value: tasks, engine, phases and evaluation."""
    desktops, prompt, rules = deploy.desktops, deploy.prompt, deploy.replay
    groups = f"{count(rules.groups_per_step, 'group')} of {count(rules.group_size, 'episode')}"
    rows = [
        ("actions", f"{prompt.action_space}: {MEANING[prompt.action_space]}"),
        ("tasks", f"{len(lanes.train)} train, {len(lanes.eval)} held out, {len(lanes.demo)} demonstrated"),
        ("engine", _engine(deploy)),
        ("batches", f"{groups} per RL step, staleness at most {rules.max_staleness}"),
        ("phases", _phases(deploy)),
        ("learning", _learning(deploy)),
        ("evaluation", _evaluation(deploy, lanes)),
        ("seats", f"{desktops.count} in {count(desktops.processes, 'process')}"),
    ]
    absent = {"batches", "learning"} if not deploy.entropulse.total_rl_steps else set()
    return [row for row in rows if row[0] not in absent]


def _learning(deploy: Deploy) -> str:
    """How RL learns: the level of its advantages and the means of its loss, then what is set otherwise than usual."""
    rl, usual_rl = deploy.learner.rl, RlConfig()
    options = [
        f"{name} {value:g}" if isinstance(value := getattr(rl, name), float) else f"{name} {value}"
        for name in OPTIONS
        if getattr(rl, name) != getattr(usual_rl, name)
    ]
    options += [f"{count(deploy.learner.rehearsal, 'exercise')} rehearsed"] if deploy.learner.rehearsal else []
    every = deploy.learner.probe_every
    options += [f"probe of 256 prompts every {count(every, 'step')}"] if every else []
    options += [f"prefix_replay {deploy.replay.prefix_replay:g}"] if deploy.replay.prefix_replay else []
    options += ["success_replay"] if deploy.replay.success_replay else []
    options += ["relabel: the oracle's answers in place of rewards"] if deploy.demos.relabel else []
    return ", ".join([f"advantages by {rl.advantage}, {deploy.learner.loss_aggregation}", *options])


def pulses(phases: EntropulseConfig) -> tuple[int, str]:
    """The most pulses (or resets) that `phases` have room for, and "up to " where their curves may allow fewer."""
    total, counted = phases.rl_steps_in_all, phases.rl_steps_per_phase
    if phases.pulse == "none" or not phases.pulse_steps or not total:
        return 0, ""
    most = min(phases.pulses, (total - 1) // (counted or 1))
    return most, "up to " if most and not counted else ""


def count(number: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number} {noun if number == 1 else noun + ('es' if noun.endswith('s') else 's')}"


def _phases(deploy: Deploy) -> str:
    phases, demos = deploy.entropulse, deploy.demos
    most, bound = pulses(phases)
    parts = [count(demos.count, "demonstration")] * bool(demos.count)
    parts += [f"{count(phases.bc_steps, 'step')} of cloning"] * bool(phases.bc_steps)
    again = count(demos.resample_bc_steps or phases.bc_steps, "step")
    if demos.resample_rounds and phases.bc_steps:
        parts.append(f"{demos.resample_rounds} x resampling and {again} of cloning again")
    if phases.total_rl_steps:
        parts.append(f"{count(phases.rl_steps_in_all, 'step')} of RL in {bound}{count(most + 1, 'phase')}")
    if most and phases.pulse == "full":
        shown = deploy.replay.pulse_demos
        beside = f" with {count(shown, 'demonstration')} each" if shown else ""
        parts.append(f"{bound}{most} x {count(phases.pulse_steps, 'step')} of pulse{beside}")
    if most < phases.pulses and phases.pulse == "full" and phases.total_rl_steps and phases.pulse_steps:
        parts.append(f"no room for {count(phases.pulses - most, 'more pulse' if most else 'pulse')}")
    return ", ".join(parts) or "none"


def _engine(deploy: Deploy) -> str:
    samplers, engine = deploy.samplers, deploy.samplers.engine
    if samplers.attach:
        return f"sglang, {count(len(samplers.attach), 'attached server')}"
    kind = "sglang" if isinstance(engine, SglangConfig) else "embedded"
    return f"{kind} on {samplers.device}" + (f", {samplers.count} of them" if samplers.count > 1 else "")


def _evaluation(deploy: Deploy, lanes: Lanes) -> str:
    evaluated, phases = deploy.evaluation, deploy.entropulse
    if not evaluated.enabled or not lanes.eval:
        return "none"
    when = ["after cloning" if phases.bc_steps else "at the beginning"]
    if evaluated.interval:
        if evaluated.interval < phases.rl_steps_in_all:
            when.append(f"every {count(evaluated.interval, 'step').removeprefix('1 ')} of RL")
        when += ["after each pulse"] * (phases.pulse == "full" and pulses(phases)[0] > 0)
    rounds = f"{', '.join(when)} and at the end"
    episodes = f" x {evaluated.episodes}" if evaluated.episodes > 1 else ""
    heat = deploy.sampling.eval_temperature
    how = "greedily" if heat == 0 else f"at temperature {heat:g}"
    idle = "; while RL draws nothing" if deploy.samplers.sglang else "; on seats RL leaves idle"
    share = f"; {evaluated.rollout_share:.1%} of RL's episodes meanwhile" if evaluated.rollout_share else idle
    share *= bool(phases.rl_steps_in_all)
    return f"{rounds}: {count(len(lanes.eval), 'instance')}{episodes} {how}{share}"
