"""The pool of demonstrators that a deploy file asks for.

Invariant: a pool that can't show one of the tasks, or whose key is not at hand, is refused before anything is started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from actors.cluster.config import DemonstrationsConfig
from actors.desktop.demonstrators import fitting
from actors.desktop.endpoint import key_of
from actors.desktop.members import EndpointMember, Member, OracleMember, refuse_bad_pool
from apis import tasks
from runtime.errors import ConfigError


def pool_of(config: DemonstrationsConfig) -> list[Member]:
    """The members of the pool; with strata and none declared, a sound oracle for every route. Raises ConfigError."""
    if config.pool:
        refuse_bad_pool(config.pool)
        for member in config.pool:
            _refuse_unknown_route(member)
        if config.routes or config.noise:
            key = "routes" if config.routes else "noise"
            raise ConfigError(f"demos.{key} is for runs without demos.pool: say it of the pool's members")
        return list(config.pool)
    if not config.attempts:
        return []
    routes = config.routes or sorted({route for family in tasks.FAMILIES.values() for route in family.routes})
    return [OracleMember(name=route, route=route, noise=config.noise) for route in routes]


def _refuse_unknown_route(member: Member) -> None:
    known = sorted({route for family in tasks.FAMILIES.values() for route in family.routes})
    if isinstance(member, OracleMember) and member.route and member.route not in known:
        raise ConfigError(f"demos.pool: {member.name}: there is no route {member.route}, only {', '.join(known)}")


def members_of(ids: Sequence[str], pool: Sequence[Member]) -> dict[str, list[str]]:
    """Family -> the members that can show its tasks. Raises ConfigError for a family that none can show."""
    if not pool:
        return {}
    found: dict[str, list[str]] = {}
    for task in ids:
        family = task.partition("/")[0]
        if family not in found:
            found[family] = fitting(pool, task)
            if not found[family]:
                raise ConfigError(f"demos.pool: no member can show {family}: it goes by {_routes(family)} only")
    return found


def _routes(family: str) -> str:
    return ", ".join(sorted(tasks.FAMILIES[family].routes))


def refuse_missing_keys(pool: Sequence[Member], environment: Mapping[str, str]) -> None:
    """Raise ConfigError naming the variable when a member's key is not set."""
    for member in pool:
        if isinstance(member, EndpointMember):
            key_of(member, environment)
