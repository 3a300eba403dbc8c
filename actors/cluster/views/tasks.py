"""What `tasks list` and `tasks show` print; nothing is started."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster import output, tables
from actors.cluster.config import suites, tasksets
from actors.cluster.tables import TextTable
from apis.tasks import osworld
from apis.tasks import registry as tasks
from apis.tasks.family import Family
from apis.tasks.osworld import Download, Task, as_file, data_of
from runtime import disk
from runtime.errors import ConfigError
from runtime.program import program

SHOWN = 160  # characters of a file's content or of a verifier's rules


def list_suite(args: argparse.Namespace) -> int:
    """Print the families of a suite."""
    if tasksets.is_of_files(args.suite):
        tasksets.files_at(args.suite)  # a wrong name is refused with the nearest one
        raise ConfigError(f"{args.suite} holds task files: {program()} tasks check {args.suite} --static lists them")
    suite = suites.load(args.suite)
    families = [tasks.FAMILIES[name] for name in suite.families]
    if args.json:
        facts = [_facts(family) for family in families]
        output.document({"suite": suite.name, "about": suite.about, "splits": suite.splits, "families": facts})
        return 0
    output.table((), [(suite.name, suite.about)])
    output.line()
    rows = [
        (family.name, family.app, " ".join(family.apps), " ".join(sorted(family.routes)),
         "yes" if family.trained else "never", " ".join(sorted(family.templates)))
        for family in families
    ]  # fmt: skip
    tables.show(TextTable(("Family", "Reported under", "Applications", "Oracles", "Trained", "Kinds"), rows))
    numbers = ", ".join(f"{split} {range_.count}" for split, range_ in suite.splits.items())
    output.line(f"\ninstances per family: {numbers}   ({program()} tasks show {families[0].name})")
    if others := [f"{name} ({package})" for name, package in tasks.OTHERS.items() if name not in suite.families]:
        output.line(f"of other packages: {', '.join(others)}")
    return 0


def _facts(family: Family) -> dict[str, Any]:
    return {
        "family": family.name,
        "app": family.app,
        "apps": family.apps,
        "routes": sorted(family.routes),
        "trained": family.trained,
        "package": tasks.OTHERS.get(family.name, ""),
        "kinds": {
            kind: {split: len(texts) for split, texts in by_split.items()}
            for kind, by_split in family.templates.items()
        },
    }


def show(args: argparse.Namespace) -> int:
    """Print one task."""
    routes: list[str] = []
    if args.task.endswith(".json"):
        tasksets.files_at(args.task)
        task = _from_file(Path(args.task))
    elif tasks.of_set(args.task):
        task = tasks.task(args.task)
    else:
        task = tasks.task(suites.instance(args.task))
        routes = sorted(tasks.family(task.id).routes)
    if args.json:
        output.document({"task": msgspec.to_builtins(task), "oracles": routes, "feasible": task.feasible})
        return 0
    kind = "" if task.feasible else "; infeasible: giving up is right"
    lines = [f"{task.id}   ({', '.join(task.related_apps)}{kind})", "", f"instruction   {task.instruction}"]
    lines += ["", "set-up", *(f"  {text}" for text in _set_up(task))]
    lines += ["", "verifier" if task.feasible else "verifier: none", *(f"  {text}" for text in _verifier(task))]
    if not routes:
        known = tasksets.verdict_on(task)
        needs = "; ".join(map(str, known.needs))
        lines += ["", f"verdict       {known.verdict}{': ' if needs else ''}{needs}"]
        lines += [f"note          {note} is not known here" for note in task.notes]
    lines += ["", f"oracles       {', '.join(routes) if routes else 'none: a task file has none'}"]
    for text in lines:
        output.line(output.clean(text))
    return 0


def _from_file(path: Path) -> Task:
    try:
        return osworld.load(disk.read_bytes(path, osworld.FILE_MAX))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _set_up(task: Task) -> list[str]:
    lines = []
    for step in task.config:
        if isinstance(step, Download):
            lines += [f"put   {source.path}   {_content(source.url)}" for source in step.files]
        else:
            plain = as_file(step)
            lines.append(f"{plain['type']}  {_short(msgspec.json.encode(plain['parameters']).decode())}")
    return lines


def _content(url: str) -> str:
    try:
        text = data_of(url).decode()
    except UnicodeDecodeError:
        return f"{len(data_of(url))} bytes"
    except ValueError:
        return _short(url)
    return _short(repr(text))


def _verifier(task: Task) -> list[str]:
    judge = task.evaluator
    if not task.feasible:
        return []
    lines = []
    for place, func in enumerate(judge.functions):
        result, expected = (
            side[place] if isinstance(side, list) and place < len(side) else side
            for side in (judge.result, judge.expected)
        )
        looked = result.get("path", result) if isinstance(result, dict) else result
        rules = expected.get("rules", expected) if isinstance(expected, dict) else expected
        lines.append(f"{func}   {looked}   {_short(str(rules))}")
    if len(lines) > 1:
        lines.append("any of them is enough" if judge.conj == "or" else "all of them must hold")
    return lines


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."
