"""Tasks by id, with their verifiers and oracles. Invariant: what an id means never depends on anything but the id."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from apis import entries
from apis.actions.spaces import ActionSpace, routes_in
from apis.applications import APP_NAMES
from apis.entries import declaring
from apis.tasks import families, programs
from apis.tasks.family import Family, Files, made_otherwise, rules_of, sought_of
from apis.tasks.oracle import Oracle, with_mixed
from apis.tasks.osworld import Task, dump
from apis.tasks.verify import office
from apis.tasks.verify.allowed import collateral
from apis.tasks.verify.manifest import Manifest
from apis.tasks.verify.media import bookmarks_are, extensions_are, playlist_is, settings_are
from apis.tasks.verify.verify import CHECKS, OnOffice, Read, TaskVerdict, WantedFile, file_bytes_are, folder_holds
from apis.tasks.verify.verify import verify as by_files
from apis.tasks.verify.verify import wanted as wanted_by_checks
from apis.tasks.view import Goal
from apis.tasks.words import SPLITS, TRAIN
from apis.tasksets import changes, judge, published, store
from runtime.errors import ConfigError

NO_ANSWERS: Mapping[str, str] = {}
CHECKS.update(bookmarks_are=bookmarks_are, playlist_is=playlist_is, settings_are=settings_are)
# Task files and their digests hold these names, so a name stays when its function is renamed.
CHECKS.update(
    folder_holds=folder_holds,
    file_bytes_are=file_bytes_are,
    extensions_are=extensions_are,
    workbook_is=OnOffice(office.workbook),
    paper_is=OnOffice(office.text_document),
    deck_is=OnOffice(office.presentation),
)


def declared() -> dict[str, Family]:
    """The families below `apis.tasks.families`, by name and in its order; a module declares its own as `FAMILIES`.

    Families of other packages come after them. Raises ConfigError for one that can't be used.
    """
    order = list(families.every())
    own = [family for module in declaring(families, "FAMILIES") for family in module.FAMILIES]
    own.sort(key=lambda family: order.index(family.name) if family.name in order else len(order))
    found = {family.name: with_mixed(family) for family in own}
    for one in entries.brought(entries.FAMILIES):
        other = one.load()
        one.checked(other, Family, found, "name")
        if not re.fullmatch(r"[a-z][a-z0-9_]*", other.name):
            one.refuse(f"its name is {other.name!r}: small letters, digits and underscores only")
        if unknown := [app for app in other.apps if app not in APP_NAMES]:
            one.refuse(f"it needs an application {unknown[0]}, and there is none")
        found[other.name] = with_mixed(other)
        OTHERS[other.name] = one.package
    return found


OTHERS: dict[str, str] = {}  # families of other packages -> the package
FAMILIES = declared()


def is_number(text: str) -> bool:
    """Whether `text` is how an id writes the number of an instance: digits of ASCII, and no 0 before others.

    An instance is drawn from its id to the letter, so another way to write the same number would be another task.
    """
    return text.isascii() and text.isdecimal() and (text == "0" or not text.startswith("0"))


def family(task_id: str) -> Family:
    """The family of `family/split/number`.

    Raises ConfigError when there is no such family or split, when the number is not written plainly, or when the family
    is never trained on and the id is of the training split.
    """
    name, split, number = [*task_id.split("/"), "", "", ""][:3]
    if name not in FAMILIES:
        raise ConfigError(f"there is no task {task_id!r}: there is no family {name!r}")
    if split not in SPLITS or not is_number(number) or task_id.count("/") != 2:
        raise ConfigError(
            f"there is no task {task_id!r}: an id is FAMILY/SPLIT/NUMBER, with split {' or '.join(SPLITS)} and a number"
            " from 0 on in plain digits"
        )
    if split == TRAIN and not FAMILIES[name].trained:
        raise ConfigError(f"there is no task {task_id!r}: {name} is never trained on, it has held-out tasks only")
    return FAMILIES[name]


@lru_cache(maxsize=1024)
def task(task_id: str) -> Task:
    """The task `family/split/number`, or `SET/DOMAIN/ID` of a task set. Raises ConfigError like `family`."""
    return store.task(task_id) if of_set(task_id) else family(task_id).task(task_id)


def of_set(task_id: str) -> bool:
    """Whether it is a task of a task set that is here, not of a family."""
    name = task_id.partition("/")[0]
    return name not in FAMILIES and store.is_set(name)


def digest(task_ids: Iterable[str]) -> str:
    """Which tasks these are: blake2b-64 (hex) of the tasks themselves, set-up and verifier included, by their ids.

    Two sets with one digest ask for the same and are checked for the same; how a check reads a file is code, and no
    part of it. Raises ConfigError like `family`.
    """
    found = hashlib.blake2b(digest_size=8)
    for task_id in sorted(set(task_ids)):
        found.update(hashlib.blake2b(dump(task(task_id))).digest())
    return found.hexdigest()


def goal(task_id: str) -> Goal:
    """What the task asks for, as its oracle sees it. Raises ConfigError like `family`."""
    return family(task_id).goal(task_id)


def judged(
    task: Task,
    read: Read,
    before: Manifest,
    after: Manifest,
    answers: Mapping[str, str] = NO_ANSWERS,
    *,
    published_metrics: bool = False,
    strict: bool = True,
) -> TaskVerdict:
    """Whether `task` is solved: its files hold what it asks for, and nothing else in HOME has changed.

    `read` finds files of the frozen guest; `before` is HOME after the set-up, `after` in the end. `answers` has what
    commands of a task file wrote; such a file is judged by its own metrics alone, with `published_metrics` by the
    published package where a metric is not here. Any other change of HOME makes it a failure. For a published set it is
    only named in the reason where not `strict`, as in an evaluation. Raises ConfigError like `verify` and `family`.
    """
    if of_set(task.id):
        fixture = store.Fixtures(task).content
        found = judge.judged(task, read, answers, fixture, published.score if published_metrics else None)
        trouble = collateral(before, after, changes.rules(task, fixture), programs.RULES) if found.success else ""
        return judge.with_collateral(found, trouble, counts=strict or not store.is_published(task.id))
    verdict = by_files(task, read)
    if not verdict.success:
        return verdict
    of = family(task.id)
    rules = rules_of(of, task)
    trouble = made_otherwise(of, task, read, before, after) or collateral(before, after, rules, programs.RULES)
    return TaskVerdict(False, trouble) if trouble else verdict


def wanted(task: Task, before: Manifest) -> list[WantedFile]:
    """The files of HOME that tell whether `task` of a family is solved. Raises ConfigError like `family`."""
    of = family(task.id)
    found = wanted_by_checks(task)
    named = {one.path for one in found}
    leaves = of.leaves(of.goal(task.id), before)
    return [*found, *(WantedFile(path) for path in leaves if path not in named)]


def sought(task: Task) -> tuple[str, ...]:
    """What no file of HOME may hold in the end, as `WantedFile` has it; nothing for a task of a task set."""
    return () if of_set(task.id) else sought_of(family(task.id), task)


@lru_cache(maxsize=1 << 14)
def kind_of(task_id: str) -> str:
    """`FAMILY/KIND`: tasks of one kind ask for the same in other words and with other values.

    Raises ConfigError like `family`.
    """
    if of_set(task_id):
        return task_id.rpartition("/")[0]  # the files of one domain
    made = goal(task_id)
    return f"{made.family}/{made.kind}"


def solved(task_id: str) -> Files:
    """The files of a solved end state, by path. Raises ConfigError like `family`."""
    of = family(task_id)
    return of.solved(of.goal(task_id))


def oracle(task_id: str, seed: int = 0, noise: float = 0.0, route: str = "", space: ActionSpace = "both") -> Oracle:
    """Who shows how the task is done within `space`: by `route`, or by one of its family's that `seed` chooses.

    Raises ConfigError like `family`, and for a route that the family does not have or that leaves `space`.
    """
    of = family(task_id)
    routes = {name: of.routes[name] for name in routes_in(space, of.routes)}
    if not routes:
        raise ConfigError(f"{task_id}: no oracle for actions {space}: it goes by {', '.join(sorted(of.routes))} only")
    drawn = hashlib.blake2b(f"{seed} {task_id}".encode(), digest_size=8).digest()
    chosen = route or sorted(routes)[int.from_bytes(drawn, "big") % len(routes)]
    if chosen not in routes:
        raise ConfigError(f"{task_id}: there is no route {route!r}, only {', '.join(sorted(routes))}")
    return Oracle(of.goal(task_id), routes[chosen], seed, noise, of.apps, space=space)
