"""The pool of demonstrators that a deploy file asks for.

Invariant: a pool that can't show one of the tasks, or whose key is not at hand, is refused before anything is started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from actors.cluster.config.schema import DemonstrationsConfig
from actors.desktop.config import EndpointMember, Member, OracleMember, key_of, refuse_bad_pool
from actors.desktop.demonstrators import fitting
from apis.actions.spaces import MIXED, ActionSpace, routes_in
from apis.tasks import registry as tasks
from runtime.errors import ConfigError

BY_TURNS = "by-turns"  # the member that takes the mixed route: "mixed" is what the ledger calls all members together


def pool_of(config: DemonstrationsConfig, space: ActionSpace = "both") -> list[Member]:
    """The members of the pool; with strata and none declared, a sound oracle for every route within `space`.

    Raises ConfigError.
    """
    if config.demonstrators:
        refuse_bad_pool(config.demonstrators)
        for member in config.demonstrators:
            _refuse_unknown_route(member, space)
        if config.routes or config.noise:
            key = "routes" if config.routes else "noise"
            raise ConfigError(f"demos.{key} is for runs without demos.demonstrators: give each of them its own")
        return list(config.demonstrators)
    if not config.attempts_per_task:
        return []
    known = {route for family in tasks.FAMILIES.values() for route in family.routes}
    return [
        OracleMember(name=BY_TURNS if route == MIXED else route, route=route, noise=config.noise)  # type: ignore[arg-type]
        for route in config.routes or routes_in(space, known)
    ]


def _refuse_unknown_route(member: Member, space: ActionSpace) -> None:
    known = sorted({route for family in tasks.FAMILIES.values() for route in family.routes})
    if isinstance(member, OracleMember) and member.route and member.route not in known:
        raise ConfigError(
            f"demos.demonstrators: {member.name}: there is no route {member.route}, only {', '.join(known)}"
        )
    if isinstance(member, OracleMember) and member.route and not routes_in(space, [member.route]):
        raise ConfigError(
            f"demos.demonstrators: {member.name}: route {member.route} needs more actions than"
            f" prompt.action_space ({space}) has"
        )


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
                raise ConfigError(
                    f"demos.demonstrators: no member can show {family}: it goes by {_routes(family)} only"
                )
    return found


def _routes(family: str) -> str:
    return ", ".join(sorted(tasks.FAMILIES[family].routes))


def refuse_missing_keys(pool: Sequence[Member], environment: Mapping[str, str]) -> None:
    """Raise ConfigError naming the variable when a member's key is not set."""
    for member in pool:
        if isinstance(member, EndpointMember):
            key_of(member, environment)
