"""All metrics by their published names.

Invariant: a name has one metric. A module below `apis.tasks.metrics` that declares `DECLARED` is found by itself.
"""

from __future__ import annotations

from apis.discovery import declaring
from apis.tasks import metrics
from apis.tasks.metrics.metric import Declared

METRICS: dict[str, Declared] = {
    found.name: found
    for module in declaring(metrics, "DECLARED", metrics.ORDER)
    for found in module.DECLARED
}  # fmt: skip
