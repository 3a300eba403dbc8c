"""Rewards and losses of a package of one's own, by the names that the deploy file gives them. No torch here."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from policy.errors import LearnerError
from runtime.errors import ConfigError

REWARD, LOSS = "learner.rl.reward", "learner.rl.loss"
REWARD_MOST = 10.0  # of a step, above or below 0
LOSS_MOST = 1e4  # of a token, above or below 0
_NAME = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")


class PlayedStep(NamedTuple):
    """One turn as a reward sees it."""

    response: str
    action: str | None  # JSON of the typed action, None when refused
    result: str | None  # what the desktop answered
    well_formed: bool


class PlayedTask(NamedTuple):
    """One episode as a reward sees it. A reward returns a number for each step."""

    task: str
    success: bool
    steps: tuple[PlayedStep, ...]


@lru_cache(maxsize=8)
def load(name: str, key: str) -> Callable[..., Any]:
    """The function that `package.module:function` names. Raises ConfigError naming `key`."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise ConfigError(f"{key} is {name!r}: it names a function as package.module:function")
    try:
        function = getattr(importlib.import_module(found[1]), found[2], None)
    except ImportError as error:
        raise ConfigError(f"{key} is {name!r}: {error}") from None
    except (Exception, SystemExit) as error:  # what a stranger's module does while it is imported
        raise ConfigError(f"{key} is {name!r}: importing it: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise ConfigError(f"{key} is {name!r}: {found[1]} has no function {found[2]}")
    return function


def call(name: str, key: str, *given: Any) -> Any:
    """What the function returns for `given`. Raises LearnerError naming `key` for whatever it raises."""
    function = load(name, key)
    try:
        return function(*given)
    except (Exception, SystemExit) as error:
        raise LearnerError(f"{key} {name} failed: {type(error).__name__}: {error}") from error


def rewards(name: str, played: PlayedTask) -> list[float]:
    """One reward for each step. Raises LearnerError for anything but that many finite numbers within the bound."""
    values = call(name, REWARD, played)
    if not isinstance(values, Sequence) or len(values) != len(played.steps):
        raise LearnerError(f"{REWARD} {name} gave {values!r:.80} for {len(played.steps)} steps of {played.task}")
    for value in values:
        if not isinstance(value, int | float) or not math.isfinite(value) or abs(value) > REWARD_MOST:
            raise LearnerError(
                f"{REWARD} {name} gave {value!r:.80}: a reward is from -{REWARD_MOST:g} to {REWARD_MOST:g}"
            )
    return [float(value) for value in values]
