"""A learner whose plans are all too large for a message."""

from __future__ import annotations

import functools

from actors.learner import plan_file
from actors.learner.actor import LearnerActor

# In a process of its own, where no test can reach it.
plan_file.sent = functools.partial(plan_file.sent, most_bytes=0)


class FilingLearner(LearnerActor):
    """The real one."""
