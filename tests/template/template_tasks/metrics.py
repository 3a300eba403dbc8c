"""A metric of task files. Invariant: a pure function of what was read."""

from __future__ import annotations

from apis.tasks.metrics.metric import Declared, Options, Score, Value, is_, text


def shouts(result: Value, _expected: Value, _options: Options) -> Score:
    """1 where a text has capitals only."""
    return is_(text(result).isupper(), "it shouts", "it does not shout")


SHOUTS = Declared("shouts", shouts)
