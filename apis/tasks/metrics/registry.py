"""All metrics by their published names: the `DECLARED` of the modules here, and those of entry points."""

from __future__ import annotations

from apis import entries
from apis.tasks.metrics import browser, office_world, settings, text
from apis.tasks.metrics.metric import Declared


def declared() -> dict[str, Declared]:
    """The program's metrics, then those of other packages. Raises ConfigError for one that can't be used."""
    known = {each.name: each for module in (text, settings, browser, office_world) for each in module.DECLARED}
    for one in entries.brought(entries.METRICS):
        other = one.load()
        for metric in other if isinstance(other, tuple) else (other,):
            one.checked(metric, Declared, known, "name")
            known[metric.name] = metric
    return known


METRICS = declared()
