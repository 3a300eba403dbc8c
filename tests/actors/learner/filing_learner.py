"""A learner whose plans are all too large for a message."""

from __future__ import annotations

import functools

from actors.learner import batches
from actors.learner.actor import LearnerActor

# In a process of its own, where no test can reach it.
batches.with_plan_file = functools.partial(batches.with_plan_file, most_bytes=0)


class FilingLearner(LearnerActor):
    """The real one."""
