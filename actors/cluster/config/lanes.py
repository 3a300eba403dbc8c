"""Which tasks each lane plays, spelled out, and who demonstrates them: nothing held out is trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from actors.cluster.config import suites, tasksets
from actors.cluster.config.schema import DemonstrationsConfig
from actors.cluster.config.suggest import blamed, hint
from actors.desktop.config import EndpointMember, Member, OracleMember, key_of, refuse_bad_pool
from actors.desktop.demonstrators import fitting
from actors.replay.config import TaskList, TaskRange, TasksConfig, expand
from apis.actions.spaces import MIXED, ActionSpace, routes_in
from apis.tasks import registry as tasks
from runtime.errors import ConfigError


class Lanes(msgspec.Struct, frozen=True, kw_only=True):
    """Task ids by lane."""

    train: list[str]
    eval: list[str]
    demo: list[str]

    @property
    def task_set(self) -> str:
        """Which tasks are held out, verifiers included."""
        return tasks.digest(self.eval)

    def trial(self, most: int) -> list[str]:
        """The training tasks by which trials of pulses are judged, at most so many, spread over all of them."""
        few = min(most, len(self.train))
        return [self.train[n * len(self.train) // few] for n in range(few)]


def lanes_of(config: TasksConfig) -> Lanes:
    """The tasks of a deploy file. Raises ConfigError for an unknown, empty, repeated or leaked one."""
    lanes = Lanes(train=_lane("train", config.train), eval=_lane("eval", config.eval), demo=_lane("demo", config.demo))
    for name, ids in (("train", lanes.train), ("demo", lanes.demo)):
        leaked = set(ids) & set(lanes.eval)
        if leaked:
            raise ConfigError(f"tasks.{name}: {min(leaked)} is also in tasks.eval, which must be held out")
        tasksets.refuse_leaks(f"tasks.{name}", ids, lanes.eval)
        suites.refuse_for_training(f"tasks.{name}", [task_id for task_id in ids if not tasks.of_set(task_id)])
    if of_sets := [task_id for task_id in lanes.demo if tasks.of_set(task_id)]:
        raise ConfigError(f"tasks.demo: {of_sets[0]} is of a task set, and no oracle demonstrates task files")
    return lanes


def _lane(name: str, listed: TaskList) -> list[str]:
    for place, entry in enumerate(listed):
        _refuse_beyond(name, place, entry)
    with blamed(f"tasks.{name}: "):
        ids = expand(listed, partial(_spelled_out, name))
        # All ids of a family and a split differ in their number alone, so the first of them is looked at for all.
        for task_id in {task_id.rpartition("/")[0]: task_id for task_id in reversed(ids)}.values():
            tasks.task(task_id)
    return ids


def _spelled_out(lane: str, wanted: TaskRange) -> list[str]:
    if wanted.set:
        return tasksets.chosen(wanted, train=lane != "eval")
    if wanted.suite:
        return suites.load(wanted.suite).spread(wanted)
    if wanted.family not in tasks.FAMILIES:
        raise ConfigError(f"there is no family {wanted.family}; {hint(wanted.family, tasks.FAMILIES)}")
    return suites.load(wanted.family).ids(wanted.family, wanted.split, wanted.first, wanted.count)


def _refuse_beyond(lane: str, place: int, entry: str | TaskRange) -> None:
    """Raise ConfigError for what would be spelt out beyond the instances there are, before it is."""
    key = f"tasks.{lane}.{place}"
    if isinstance(entry, str):
        with blamed(f"{key}: "):
            tasksets.refuse_unsound(entry) if tasks.of_set(entry) else suites.refuse_unknown(entry)
    else:
        with blamed(f"{key}.{'set' if entry.set else 'suite' if entry.suite else 'family'}: "):
            _spelled_out(lane, entry)


def refuse_undoable(ids: list[str], space: ActionSpace, lane: str) -> None:
    """Raise ConfigError for tasks without a known way to do them within `space`."""
    for name in dict.fromkeys(task_id.partition("/")[0] for task_id in ids if not tasks.of_set(task_id)):
        has = tasks.FAMILIES[name].routes
        if not routes_in(space, has):
            raise ConfigError(
                f"tasks.{lane}: {name} goes by {', '.join(sorted(has))} only, prompt.action_space is {space}"
            )


def routes_of(ids: list[str], wanted: Sequence[str], space: ActionSpace = "both") -> dict[str, list[str]]:
    """The routes within `space` by which each family of `ids` is demonstrated: those of `wanted`, or all.

    Raises ConfigError.
    """
    for route in wanted:
        _refuse_route(f"demos.routes: {route}", route, space)
    found: dict[str, list[str]] = {}
    for name in dict.fromkeys(task_id.partition("/")[0] for task_id in ids):
        has = routes_in(space, tasks.FAMILIES[name].routes)
        found[name] = [route for route in has if not wanted or route in wanted]
        if not found[name]:
            raise ConfigError(f"demos.routes: {name} goes by {', '.join(has)} only, not by {', '.join(wanted)}")
    return found


BY_TURNS = "by-turns"  # the member that takes the mixed route: "mixed" is what the ledger calls all members together


def pool_of(config: DemonstrationsConfig, space: ActionSpace = "both") -> list[Member]:
    """The members of the pool; with strata and none declared, a sound oracle for every route within `space`.

    Raises ConfigError.
    """
    if config.demonstrators:
        refuse_bad_pool(config.demonstrators)
        for member in config.demonstrators:
            if isinstance(member, OracleMember) and member.route:
                _refuse_route(f"demos.demonstrators: {member.name}: route {member.route}", member.route, space)
        if config.routes or config.noise:
            key = "routes" if config.routes else "noise"
            raise ConfigError(f"demos.{key} is for runs without demos.demonstrators: give each of them its own")
        return list(config.demonstrators)
    if not config.attempts_per_task:
        return []
    return [
        OracleMember(name=BY_TURNS if route == MIXED else route, route=route, noise=config.noise)  # type: ignore[arg-type]
        for route in config.routes or routes_in(space, _known_routes())
    ]


def _known_routes() -> list[str]:
    return sorted({route for family in tasks.FAMILIES.values() for route in family.routes})


def _refuse_route(what: str, route: str, space: ActionSpace) -> None:
    if route not in _known_routes():
        raise ConfigError(f"{what}: no such route; {hint(route, _known_routes())}")
    if not routes_in(space, [route]):
        raise ConfigError(f"{what} needs more actions than prompt.action_space ({space}) has")


def members_of(ids: Sequence[str], pool: Sequence[Member], space: ActionSpace = "both") -> dict[str, list[str]]:
    """Family -> the members that can show its tasks within `space`. Raises ConfigError for a family that none can."""
    if not pool:
        return {}
    found: dict[str, list[str]] = {}
    for task in ids:
        family = task.partition("/")[0]
        if family not in found:
            found[family] = fitting(pool, task, space)
            if not found[family]:
                by = ", ".join(sorted(tasks.FAMILIES[family].routes))
                raise ConfigError(f"demos.demonstrators: no member can show {family}: it goes by {by} only")
    return found


def refuse_missing_keys(pool: Sequence[Member], environment: Mapping[str, str]) -> None:
    """Raise ConfigError naming the variable when a member's key is not set."""
    for member in pool:
        if isinstance(member, EndpointMember):
            key_of(member, environment)
