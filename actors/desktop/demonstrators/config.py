"""Who may demonstrate: what the deploy file says of the pool, and who takes a step that nobody in particular takes.

Invariant: data and pure choices. A key is named by its environment variable, it never stands in a file or a log.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

import msgspec

from apis.prompts.compact import Form
from runtime.errors import ConfigError
from runtime.urls import refuse_bad_url

RESERVED = ("mixed", "policy", "")  # what the ledger says in place of a member's name


class OracleMember(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="oracle"):
    """The program that knows the task, sound or careless."""

    name: str  # in logs and strata
    route: str = ""  # "gui", "api" or "mixed"; "": drawn for each attempt
    noise: float = 0.0  # how often it takes a harmless wrong step and recovers
    haste: float = 0.0  # how often, before a step, it claims to be done whether it is or not

    def __post_init__(self) -> None:
        for key in ("noise", "haste"):
            if not 0 <= getattr(self, key) < 1:
                share = f"{getattr(self, key):g}"
                raise ConfigError(f"demos.pool: {self.name}: {key} is {share}, it is a share from 0 to below 1")


class EndpointMember(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="endpoint"):
    """A model behind a server that speaks the OpenAI chat completions protocol."""

    name: str  # in logs and strata
    url: str  # up to and including the version, as in https://example.org/v1
    model: str  # as the endpoint calls it
    key_env: str = ""  # environment variable that holds the key; "": none is sent
    temperature: float = 1.0  # of its answers
    form: Form = "paper"  # of the prompt it is sent; its answer is put into the run's own form
    max_tokens: int = 1024  # of one answer
    length_key: Literal["max_tokens", "max_completion_tokens"] = (
        "max_tokens"  # newer OpenAI models take the second only
    )
    timeout_s: float = 60.0  # one try
    retries: int = 3  # after a failed try
    first_backoff_s: float = 0.5  # before the second try; doubled before each next
    longest_backoff_s: float = 20.0  # between two tries
    concurrent: int = 4  # requests at the same time from one process of desktops

    def __post_init__(self) -> None:
        at = f"demos.pool: {self.name}"
        refuse_bad_url(self.url, f"{at}: url", "name the environment variable of a key by key_env")
        if self.timeout_s <= 0 or self.retries < 0 or self.concurrent < 1 or self.max_tokens < 1:
            raise ConfigError(f"{at}: timeout_s is above 0, retries from 0, concurrent and max_tokens from 1")
        if not 0 <= self.first_backoff_s <= self.longest_backoff_s:
            raise ConfigError(f"{at}: first_backoff_s is from 0 to longest_backoff_s")


Member = OracleMember | EndpointMember


def refuse_bad_pool(pool: Sequence[Member]) -> None:
    """Raise ConfigError for a name that comes twice or that the ledger uses itself."""
    seen: set[str] = set()
    for member in pool:
        if member.name in RESERVED or "/" in member.name:
            raise ConfigError(f"demos.pool: {member.name!r} names no member: not mixed or policy, and no slash in it")
        if member.name in seen:
            raise ConfigError(f"demos.pool: {member.name} is there twice")
        seen.add(member.name)


def who(names: Sequence[str], seed: int, step: int) -> str:
    """Who of `names` takes step `step` of an attempt in which everybody may: drawn anew for each step."""
    return random.Random(f"{seed} {step}").choice(sorted(names))  # noqa: S311 - repeatable, nothing secret


def hasty(haste: float, seed: int, step: int) -> bool:
    """Whether a careless member claims at this step that it is done."""
    return random.Random(f"{seed} {step} haste").random() < haste  # noqa: S311 - as above
