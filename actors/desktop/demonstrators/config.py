"""The demonstrators of a deploy file, and the draw of which takes each step of a shared attempt.

Invariant: this module holds data and pure choices. A key is named by its environment variable and never stands in a
file or a log.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from actors.desktop.endpoints.config import EndpointConfig
from apis.prompts import Form
from runtime.errors import ConfigError
from runtime.settings import Section, tuning

RESERVED = ("mixed", "policy", "")  # what the ledger says in place of a member's name


class OracleMember(Section, frozen=True, kw_only=True, tag="oracle"):
    """The program that knows the task, sound or careless."""

    AT: ClassVar[str] = "demos.demonstrators"

    name: Annotated[str, tuning("Names the demonstrator in logs and strata.")]
    route: Annotated[
        Literal["", "gui", "api", "mixed"],
        tuning("Chooses the route of its actions: gui, api or mixed. Empty draws one per attempt."),
    ] = ""
    noise: Annotated[
        float, tuning("Sets the share of steps before which it takes a harmless wrong step.", ge=0, lt=1)
    ] = 0.0
    haste: Annotated[float, tuning("Sets the share of steps before which it claims to be done.", ge=0, lt=1)] = 0.0


class EndpointMember(EndpointConfig, frozen=True, kw_only=True, tag="endpoint"):
    """A model behind a server that speaks the OpenAI chat completions protocol."""

    AT: ClassVar[str] = "demos.demonstrators"

    name: Annotated[str, tuning("Names the demonstrator in logs and strata.")]
    temperature: Annotated[float, tuning("Sets the temperature of its answers.", ge=0)] = 1.0
    max_tokens: Annotated[int, tuning("Limits one answer, in tokens.", ge=1)] = 1024
    format: Annotated[Form, tuning("Chooses the format of its prompts. Its answers are put into prompt.format.")] = (
        "published"
    )

    @property
    def at(self) -> str:
        """What errors call it."""
        return f"{self.AT}: {self.name}"


Member = OracleMember | EndpointMember


def refuse_bad_pool(pool: Sequence[Member]) -> None:
    """Raise ConfigError for a name that comes twice or that the ledger uses itself."""
    seen: set[str] = set()
    for member in pool:
        if member.name in RESERVED or "/" in member.name:
            raise ConfigError(
                f"demos.demonstrators: {member.name!r} names no member: not mixed or policy, and no slash in it"
            )
        if member.name in seen:
            raise ConfigError(f"demos.demonstrators: {member.name} is there twice")
        seen.add(member.name)


def who(names: Sequence[str], seed: int, step: int) -> str:
    """Which of `names` takes step `step` of an attempt that all share: drawn again for each step."""
    return random.Random(f"{seed} {step}").choice(sorted(names))  # noqa: S311 - repeatable, nothing secret


def hasty(haste: float, seed: int, step: int) -> bool:
    """Whether a careless member claims at this step that it is done."""
    return random.Random(f"{seed} {step} haste").random() < haste  # noqa: S311 - as above
