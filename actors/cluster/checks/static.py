"""Whether tasks are sound by their files alone: no desktop, nothing is run.

A task that is not listed loads, can be set up, can be judged, and is not solved at its start. Where its family can
build the end state, the verifier accepts it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from actors.cluster.config import tasksets
from apis.plans.setup import setup
from apis.tasks import osworld
from apis.tasks import registry as tasks
from apis.tasks.family import Family, at_start, reader
from apis.tasks.osworld import HOME, Task
from apis.tasks.verify.verify import CHECKS, verify, wanted
from apis.tasks.words import HELD_OUT, TRAIN
from apis.tasksets.package import Verdict
from runtime import disk
from runtime.errors import ConfigError

SHARED_SHOWN = 5  # values or wordings named of those that two splits share


class Finding(msgspec.Struct, frozen=True):
    """One trouble."""

    where: str  # the file, the task's id or the family
    key: str
    problem: str


class Report(msgspec.Struct, kw_only=True):
    """What was looked at and what was found."""

    tasks: int = 0
    families: int = 0
    repeated: int = 0  # instances that say and hold the very same as another of their family
    findings: list[Finding] = []

    def add(self, where: str, key: str, problem: str) -> None:
        """One more finding."""
        self.findings.append(Finding(where, key, problem))


class FileRow(msgspec.Struct, frozen=True):
    """A task file: what it needs here, who judges it, and what it has beside the known form."""

    file: str
    id: str
    verdict: Verdict
    needs: list[str]
    notes: list[str] = []
    judge: str = "here"
    solvable: bool = False
    offline: str = ""  # why no policy can solve it without a network


def check_files(files: list[Path], told: Callable[[int], None], **there: bool) -> list[FileRow]:
    """The verdict on each task file; `there` is what `covered` takes. `told` hears how many are done."""
    rows = []
    for done, file in enumerate(files, 1):
        told(done)
        try:
            task = osworld.load(disk.read_bytes(file, osworld.FILE_MAX))
        except (OSError, ConfigError) as error:
            rows.append(FileRow(str(file), file.stem, "unsupported", [f"file {error}"]))
            continue
        found = tasksets.verdict_on(task, **there)
        notes = [*(f"{note} is not known here" for note in task.notes), *found.notes]
        needs = [str(need) for need in found.needs]
        rows.append(
            FileRow(str(file), found.id, found.verdict, needs, notes, found.judge, found.solvable, found.offline)
        )
    return rows


def lacking(rows: Sequence[FileRow]) -> list[tuple[str, int]]:
    """What the files lack here and how many lack it, the most first; fixtures, and pages, count as one piece each."""
    pieces = Counter(piece for one in rows for piece in {_piece(need) for need in one.needs})
    return pieces.most_common()


def _piece(need: str) -> str:
    kinds = ("fixture ", "fixtures"), ("network ", "network")
    return next((name for kind, name in kinds if need.startswith(kind)), need)


def _check_task(report: Report, where: str, task: Task) -> None:
    for place, step in enumerate(task.config):
        try:
            setup(msgspec.structs.replace(task, config=[step]), HOME)
        except ConfigError as error:
            report.add(where, f"config.{place}", str(error).removeprefix(f"task {task.id}: "))
    for place, func in enumerate(task.evaluator.functions):
        if task.feasible and func not in CHECKS:
            report.add(where, f"evaluator.func.{place}", f"there is no verifier {func}")


def check_families(ids: dict[str, list[str]], told: Callable[[int], None]) -> Report:
    """Instances by family name, of both splits where there are both. `told` hears how many are done."""
    report = Report(families=len(ids))
    values: dict[str, dict[str, str]] = {TRAIN: {}, HELD_OUT: {}}
    wordings: dict[str, dict[str, str]] = {TRAIN: {}, HELD_OUT: {}}
    said: dict[str, dict[str, str]] = {TRAIN: {}, HELD_OUT: {}}
    for name, listed in ids.items():
        family = tasks.FAMILIES[name]
        for kind, worded in family.templates.items():
            for split, texts in worded.items():
                wordings.setdefault(split, {}).update(dict.fromkeys(texts, f"{name} ({kind})"))
        known: set[bytes] = set()
        for task_id in listed:
            report.tasks += 1
            told(report.tasks)
            task = _instance(report, family, task_id)
            if task is None:
                continue
            split = task_id.split("/")[1]
            said[split][task.instruction] = task_id
            values[split].update(dict.fromkeys(family.values(family.goal(task_id)), task_id))
            content = msgspec.json.encode(msgspec.structs.replace(task, id=""))
            report.repeated += content in known
            known.add(content)
    for key, by_split in (("values", values), ("templates", wordings), ("instruction", said)):
        report.findings.extend(_shared(key, by_split))
    return report


def _instance(report: Report, family: Family, task_id: str) -> Task | None:
    """The instance, or None when it could not be made; troubles are added to `report`."""
    try:
        task = tasks.task(task_id)
        again = osworld.load(osworld.dump(task))
        goal = family.goal(task_id)
    except (ConfigError, LookupError, ValueError, msgspec.DecodeError) as error:
        report.add(task_id, "-", f"it can't be made: {error}")
        return None
    if again != task:
        report.add(task_id, "-", "it is not the same after a round trip through its file's form")
    before = len(report.findings)
    _check_task(report, task_id, task)
    if len(report.findings) > before or not task.feasible:
        return task
    try:
        looked_at = wanted(task)
        start = verify(task, reader(at_start(task)))
        end = verify(task, reader(family.solved(goal)))
    except (ConfigError, LookupError, ValueError) as error:
        report.add(task_id, "evaluator", f"it can't be judged: {error}")
        return task
    if not looked_at:
        report.add(task_id, "evaluator.result", "the verifier looks at nothing")
    if start.success:
        report.add(task_id, "evaluator", f"it is solved before anything was done: {start.reason}")
    if not end.success:
        report.add(task_id, "evaluator", f"its own wanted end state does not pass: {end.reason}")
    return task


def _shared(key: str, by_split: dict[str, dict[str, str]]) -> Iterator[Finding]:
    """A finding for each of a few things that training and held-out tasks share, and one for the rest."""
    common = sorted(by_split[TRAIN].keys() & by_split[HELD_OUT].keys())
    for text in common[:SHARED_SHOWN]:
        owner = by_split[TRAIN][text]
        yield Finding(by_split[HELD_OUT][text], key, f"{text!r} is also in training: {owner}")
    if len(common) > SHARED_SHOWN:
        yield Finding("-", key, f"and {len(common) - SHARED_SHOWN} more that both splits have")
