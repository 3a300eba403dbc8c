"""Tasks by id, with their verifiers and oracles. Invariant: what an id means never depends on anything but the id."""

from __future__ import annotations

from functools import lru_cache

from apis.tasks import file_manager, file_manager_oracle, text_editor, text_editor_oracle
from apis.tasks.demonstrator import Oracle
from apis.tasks.family import Goal
from apis.tasks.osworld import Task
from apis.tasks.words import SPLITS
from runtime.errors import ConfigError

FAMILIES = {module.NAME: module for module in (text_editor, file_manager)}

_DECIDE = {text_editor.NAME: text_editor_oracle.decide, file_manager.NAME: file_manager_oracle.decide}


@lru_cache(maxsize=1024)
def task(task_id: str) -> Task:
    """The task `family/split/seed`. Raises ConfigError when there is no such family or split."""
    return FAMILIES[_checked(task_id)].task(task_id)


def goal(task_id: str) -> Goal:
    """What the task asks for, as its oracle sees it. Raises ConfigError like `task`."""
    return FAMILIES[_checked(task_id)].goal(task_id)


def oracle(task_id: str, seed: int = 0, noise: float = 0.0) -> Oracle:
    """Who shows how the task is done; `seed` chooses among its routes. Raises ConfigError like `task`."""
    return Oracle(goal(task_id), _DECIDE[_checked(task_id)], seed, noise)


def _checked(task_id: str) -> str:
    family, split, seed = [*task_id.split("/"), "", "", ""][:3]
    if family not in FAMILIES or split not in SPLITS or not seed.isdecimal() or task_id.count("/") != 2:
        raise ConfigError(f"there is no task {task_id!r}: ids are FAMILY/SPLIT/SEED, families {', '.join(FAMILIES)}")
    return family
