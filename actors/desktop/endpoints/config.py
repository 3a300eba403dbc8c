"""What a deploy file says of a model behind a server that speaks the OpenAI chat completions protocol.

Invariant: a key is named by its environment variable and never stands in a file or a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import msgspec

from runtime.errors import ConfigError
from runtime.settings import Section, refuse_bad_url, tuning

STOPS_MOST = 4  # what such servers take
TopP = Annotated[float, msgspec.Meta(gt=0, le=1)]


class EndpointConfig(Section, frozen=True, kw_only=True):
    """A server, what it is asked for and how long."""

    AT: ClassVar[str] = "model.endpoint"

    url: Annotated[str, tuning("Gives the server's URL with its version, as in https://example.org/v1.")]
    model: Annotated[str, tuning("Names the model as the endpoint calls it.")]
    key_env: Annotated[str, tuning("Names the environment variable that holds the key. Empty sends none.")] = ""
    top_p: Annotated[
        TopP | None, tuning("Draws from the likeliest tokens of this share together. null leaves it to the server.")
    ] = None
    stop: Annotated[list[str], tuning("Lists texts that end an answer, four at most.")] = []
    stream: Annotated[
        bool, tuning("Asks for the answer piece by piece, for proxies that cut what is silent for long.")
    ] = False
    length_key: Annotated[
        Literal["max_tokens", "max_completion_tokens"],
        tuning("Chooses the request's field for an answer's limit. Newer OpenAI models take only the second."),
    ] = "max_tokens"
    timeout_s: Annotated[float, tuning("Limits one try, in seconds.", gt=0)] = 60.0
    retries: Annotated[int, tuning("Limits the tries after a failed one.", ge=0)] = 3
    first_backoff_s: Annotated[
        float, tuning("Waits this long before the second try, in seconds. Each later wait doubles.", ge=0)
    ] = 0.5
    longest_backoff_s: Annotated[float, tuning("Limits the wait between two tries, in seconds.", ge=0)] = 20.0
    concurrent: Annotated[int, tuning("Limits the requests at the same time from one process of desktops.", ge=1)] = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_bad_url(self.url, f"{self.at}: url", "name the environment variable of a key by key_env")
        if self.first_backoff_s > self.longest_backoff_s:
            raise ConfigError(f"{self.at}: first_backoff_s is from 0 to longest_backoff_s")
        if len(self.stop) > STOPS_MOST or not all(self.stop):
            raise ConfigError(f"{self.at}: stop lists at most {STOPS_MOST} texts, none of them empty")

    @property
    def at(self) -> str:
        """What errors call it."""
        return self.AT

    @property
    def answer_s(self) -> float:
        """Seconds that one answer takes at the most, all tries and waits together."""
        return (self.retries + 1) * self.timeout_s + self.retries * self.longest_backoff_s


def key_of(endpoint: EndpointConfig, environment: Mapping[str, str]) -> str:
    """The endpoint's key, "" when it needs none. Raises ConfigError naming the variable that is not set."""
    if not endpoint.key_env:
        return ""
    found = environment.get(endpoint.key_env, "")
    if not found:
        raise ConfigError(f"{endpoint.at}: key_env names {endpoint.key_env}, which is not set: export it first")
    return found
