"""What `tasks list` and `tasks show` print.

Invariant: everything shown is made from the suite, the task's id or its file; nothing is started.
"""

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
from apis.tasks.osworld import Download, Task, UnknownStep, data_of
from runtime import disk
from runtime.errors import ConfigError
from runtime.program import program

INSTRUCTION_SHOWN = 80  # characters, in a list
CONTENT_SHOWN = 160  # characters of a file's content or of a verifier's rules


def list_suite(args: argparse.Namespace) -> int:
    """Print the families of a suite, or the tasks of a file or folder."""
    if tasksets.is_of_files(args.suite):
        return _list_files(tasksets.files_at(args.suite), as_json=args.json)
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
    output.line(
        f"\ninstances per family: {numbers}   ({program()} tasks show {families[0].name}/{_first(families[0])}/0)"
    )
    if others := [f"{name} ({package})" for name, package in tasks.OTHERS.items() if name not in suite.families]:
        output.line(f"of other packages: {', '.join(others)}")
    return 0


def _list_files(files: list[Path], *, as_json: bool) -> int:
    rows = [_listed(file) for file in files]
    if as_json:
        output.document(rows)
        return 0
    cells = [
        (row["file"], "-", "-", f"no task: {row['problem']}") if row["problem"] is not None
        else (row["file"], " ".join(row["apps"]), "yes" if row["feasible"] else "no", _start(row["instruction"]))
        for row in rows
    ]  # fmt: skip
    tables.show(TextTable(("File", "Applications", "Feasible", "Instruction"), cells))
    first = next((f"   ({program()} tasks show {row['file']})" for row in rows if row["problem"] is None), "")
    output.line(f"\n{len(rows)} task file{'s' * (len(rows) > 1)}{first}")
    return 0


def _listed(file: Path) -> dict[str, Any]:
    try:
        task = _from_file(file)
    except ConfigError as error:
        nothing: dict[str, Any] = {"id": None, "apps": [], "feasible": None, "instruction": None}
        return {"file": str(file), **nothing, "problem": str(error).removeprefix(f"{file}: ")}
    facts = {"id": task.id, "apps": task.related_apps, "feasible": task.feasible, "instruction": task.instruction}
    return {"file": str(file), **facts, "problem": None}


def _start(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= INSTRUCTION_SHOWN else words[:INSTRUCTION_SHOWN] + "..."


def _first(family: Family) -> str:
    return suites.splits_of(family)[0]


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
        plain = msgspec.to_builtins(task)
        output.document({"task": plain, "oracles": routes, "feasible": task.feasible})
        return 0
    kind = "" if task.feasible else "; infeasible: giving up is right"
    output.line(output.clean(f"{task.id}   ({', '.join(task.related_apps)}{kind})"))
    output.line("\n" + output.clean(f"instruction   {task.instruction}"))
    output.line("\nset-up")
    for text in _set_up(task):
        output.line(output.clean(f"  {text}"))
    output.line("\nverifier" if task.feasible else "\nverifier: none")
    for text in _verifier(task):
        output.line(output.clean(f"  {text}"))
    if not routes:
        known = tasksets.verdict_on(task)
        needs = "; ".join(map(str, known.needs))
        output.line(f"\nverdict       {known.verdict}{': ' if needs else ''}{needs}")
        for note in task.notes:
            output.line(f"note          {note} is not known here")
    output.line(f"\noracles       {', '.join(routes) if routes else 'none: a task file has none'}")
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
            lines += [f"put   {source.path}   {_content(source.url)}" for source in step.parameters.files]
        else:
            kind = step.type if isinstance(step, UnknownStep) else type(step).__struct_config__.tag
            lines.append(f"{kind}  {_short(msgspec.json.encode(step.parameters).decode())}")
    return lines


def _content(url: str) -> str:
    try:
        data = data_of(url)
    except ValueError:
        return _short(url)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"{len(data)} bytes"
    return _short(repr(text)) if text.isprintable() or "\x00" not in text else f"{len(data)} bytes"


def _verifier(task: Task) -> list[str]:
    ev = task.evaluator
    if not task.feasible:
        return []
    functions = [ev.func] if isinstance(ev.func, str) else ev.func
    lines = []
    for place, func in enumerate(functions):
        result, expected = (
            side[place] if isinstance(side, list) and place < len(side) else side for side in (ev.result, ev.expected)
        )
        looked = result.get("path", result) if isinstance(result, dict) else result
        rules = expected.get("rules", expected) if isinstance(expected, dict) else expected
        lines.append(f"{func}   {looked}   {_short(str(rules))}")
    if len(functions) > 1:
        lines.append("any of them is enough" if ev.conj == "or" else "all of them must hold")
    return lines


def _short(text: str) -> str:
    return text if len(text) <= CONTENT_SHOWN else text[:CONTENT_SHOWN] + "..."
