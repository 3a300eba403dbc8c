"""Which family and route the next demonstration is of.

Invariant: pure. Strata advance evenly by what they have stored and have in flight. A stratum that keeps failing does
not hold the others back once its share of attempts is used up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class TaskStratum(NamedTuple):
    """Tasks of one family by one route. `route` "" leaves the choice to the demonstrator."""

    family: str
    route: str
    tasks: list[str]

    @property
    def name(self) -> str:
        """As counters call it."""
        return name_of(self.family, self.route)


def name_of(family: str, route: str) -> str:
    """`family/route`."""
    return f"{family}/{route}"


def family_of(task: str) -> str:
    """What stands before an id's first slash, "" where there is none."""
    return task.partition("/")[0] if "/" in task else ""


def strata(tasks: Sequence[str], routes: Mapping[str, Sequence[str]]) -> list[TaskStratum]:
    """The strata of `tasks`, in order of appearance; a family without `routes` has one stratum."""
    by_family: dict[str, list[str]] = {}
    for task in tasks:
        by_family.setdefault(family_of(task), []).append(task)
    return [
        TaskStratum(family, route, listed)
        for family, listed in by_family.items()
        for route in (routes.get(family) or ("",))
    ]


def order(
    found: Sequence[TaskStratum], held: Mapping[str, int], tried: Mapping[str, int], most: int
) -> list[TaskStratum]:
    """`found` in the order in which they should be tried next.

    `held` are demonstrations stored or in flight and `tried` those handed out, by stratum; `most` attempts in all.
    """
    share = -(-most // max(1, len(found)))
    return sorted(
        found, key=lambda one: (tried.get(one.name, 0) >= share, held.get(one.name, 0), tried.get(one.name, 0))
    )
