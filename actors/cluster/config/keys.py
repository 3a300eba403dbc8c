"""What deploy files may say, read from the classes they are checked against, and what one comes to."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import inspect

from actors.cluster import output
from actors.cluster.config.lanes import Lanes
from actors.cluster.config.schema import Deploy, DeployFile
from actors.cluster.config.suggest import nearest
from actors.entropulse.config import EntropulseConfig
from actors.learner.config import OPTIONS, RlConfig
from actors.sampler.config import SglangConfig
from apis.actions.spaces import MEANING
from runtime.errors import ConfigError
from runtime.settings import ADVANCED, parts

_PLAIN: dict[type[inspect.Type], str] = {
    inspect.StrType: "text", inspect.IntType: "whole number", inspect.FloatType: "number", inspect.NoneType: "null",
    inspect.BoolType: "true | false", inspect.AnyType: "value", inspect.DictType: "mapping", inspect.ListType: "list",
    inspect.VarTupleType: "list", inspect.TupleType: "list",
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
    return list(_of(inspect.type_info(DeployFile), "", {}))


def _of(struct: inspect.Type, at: str, seen: dict[type, str], chosen: str = "") -> Iterator[Key]:
    for field in struct.fields if isinstance(struct, inspect.StructType) else ():
        key, shapes, default = f"{at}.{field.encode_name}".lstrip("."), parts(field.type), _default(field)
        entries = [each for part in shapes if isinstance(part, inspect.ListType) for each in parts(part.item_type)]
        structs = [each for each in entries if isinstance(each, inspect.StructType)]
        sections = [part for part in shapes if isinstance(part, inspect.StructType)]
        same = next((seen[each.cls] for each in structs if each.cls in seen), "")
        if not sections:
            meta = field.type if isinstance(field.type, inspect.Metadata) else inspect.Metadata(field.type)
            shared = f"Its entries are those of {same}." if same else ""
            meaning = " ".join(filter(None, (chosen, (meta.extra_json_schema or {}).get("description", ""), shared)))
            advanced = bool((meta.extra or {}).get(ADVANCED))
            yield Key(key, " or ".join(map(_called, shapes)), default, advanced, meaning)
        yield from _chosen(sections, key, seen, chosen, default)
        if not same:
            seen.update({each.cls: key for each in structs})
            yield from _chosen(structs, f"{key}[]", seen, chosen, None)


def _chosen(
    structs: list[inspect.StructType], at: str, seen: dict[type, str], chosen: str, default: str | None
) -> Iterator[Key]:
    """The keys of what lies at `at`, which is one of `structs`; which, its `type` says where there are several."""
    if len(structs) > 1:
        usual = None if default is None else msgspec.json.decode(default)["type"]
        kinds = " | ".join(str(each.tag) for each in structs)
        yield Key(f"{at}.type", kinds, usual, advanced=at.endswith("[]"), meaning="Chooses which it is.")
    for each in structs:
        yield from _of(each, at, seen, f"({each.tag})" if len(structs) > 1 else chosen)


def _called(shape: inspect.Type) -> str:
    if isinstance(shape, inspect.LiteralType):
        return " | ".join(map(str, shape.values))
    if isinstance(shape, inspect.EnumType):
        return " | ".join(str(each.value) for each in shape.cls)
    return _PLAIN[type(shape)]


def _default(field: inspect.Field) -> str | None:
    value: Any = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    if value is msgspec.NODEFAULT:
        return None
    plain = msgspec.to_builtins(value)
    return plain if isinstance(plain, str) and plain else msgspec.json.encode(plain).decode()


def matching(word: str, keys: Iterable[Key]) -> list[Key]:
    """Those that have `word` in their name, choices or meaning."""
    texts = {one: f"{one.key} {one.type * ('|' in one.type)} {one.meaning}".lower() for one in keys}
    return [one for one, text in texts.items() if word.lower() in text]


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
    return ", ".join([f"advantages by {rl.advantage}, {deploy.learner.loss_aggregation}", *options])


def pulses(phases: EntropulseConfig) -> tuple[int, str]:
    """The most pulses or trials that `phases` have room for, and "up to " where their curves may allow fewer."""
    total, counted = phases.total_rl_steps, phases.rl_steps_per_phase
    if not total or (phases.pulse == "full" and not phases.pulse_steps):
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
        parts.append(f"{count(phases.total_rl_steps, 'step')} of RL in {bound}{count(most + 1, 'phase')}")
    if most and phases.pulse == "full":
        shown = deploy.replay.pulse_demos
        beside = f" with {count(shown, 'demonstration')} each" if shown else ""
        parts.append(f"{bound}{most} x {count(phases.pulse_steps, 'step')} of pulse{beside}")
    if most and phases.pulse == "trials":
        parts.append(f"up to {count(most, 'trial')} of a pulse, judged on up to {phases.trial_tasks} training tasks")
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
        if evaluated.interval < phases.total_rl_steps:
            when.append(f"every {count(evaluated.interval, 'step').removeprefix('1 ')} of RL")
        when += ["after each pulse"] * (phases.pulse == "full" and pulses(phases)[0] > 0)
    rounds = f"{', '.join(when)} and at the end"
    episodes = f" x {evaluated.episodes}" if evaluated.episodes > 1 else ""
    heat = deploy.sampling.eval_temperature
    how = "greedily" if heat == 0 else f"at temperature {heat:g}"
    idle = "; while RL draws nothing" if deploy.samplers.sglang else "; on seats RL leaves idle"
    share = f"; {evaluated.rollout_share:.1%} of RL's episodes meanwhile" if evaluated.rollout_share else idle
    share *= bool(phases.total_rl_steps)
    return f"{rounds}: {count(len(lanes.eval), 'instance')}{episodes} {how}{share}"
