"""Figures of the runs that go on, as Prometheus reads them.

Invariant: names follow Prometheus' conventions: a unit at the end, `_total` for what only grows. Every series names its
run. A scrape is a look at what runs write; a run that can't be read is left out of it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from actors.cluster.runs import run_folder
from actors.cluster.web.run_reader import RunNow, RunReader
from runtime.errors import ComputerRLError

# name, help, the label beside `run` and where its values stand in `RunNow`
_COUNTERS = (
    ("computerrl_episodes", "Episodes with an outcome.", "lane", "episodes"),
    ("computerrl_faults", "Episodes that infrastructure broke.", "cause", "faults"),
    ("computerrl_groups_ended", "Groups by how they ended.", "ending", "endings"),
    ("computerrl_optimizer_steps", "Optimizer steps that stand.", "phase", "steps"),
    ("computerrl_trained_trajectories", "Trajectories by optimizer steps between playing and training.", "staleness",
     "staleness"),
)  # fmt: skip
_GAUGES = (
    ("computerrl_groups", "Groups that have not ended.", "state", "groups"),
    ("computerrl_seat_time_seconds", "Where seats spent the last ten minutes.", "stage", "stages_s"),
)
_OF_STEP = (
    ("loss", "computerrl_loss", "Loss of the newest optimizer step."),
    ("entropy", "computerrl_entropy_nats", "Entropy per token at the newest optimizer step."),
    ("kl", "computerrl_kl_nats", "KL per token from the reference at the newest optimizer step."),
    ("clip_fraction", "computerrl_clip_ratio", "Share of clipped tokens in the newest optimizer step."),
)


class RunMetrics(Collector):
    """All series of the runs below a folder that go on."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._readers: dict[Path, RunReader] = {}
        self._lock = threading.Lock()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def scrape(self) -> bytes:
        """The text that Prometheus reads."""
        with self._lock:
            return generate_latest(self._registry)

    def close(self) -> None:
        """Close the runs' files."""
        for reader in self._readers.values():
            reader.close()

    def describe(self) -> list[Metric]:
        """Nothing is known before a look."""
        return []

    def collect(self) -> Iterator[Metric]:
        """One family after the other, of all runs."""
        looks = self._looks()
        for made, rows in ((CounterMetricFamily, _COUNTERS), (GaugeMetricFamily, _GAUGES)):
            for name, text, label, field in rows:
                family = made(name, text, labels=("run", label))
                for found in looks:
                    for what, value in getattr(found, field).items():
                        family.add_metric((found.run, str(what)), value)
                yield family
        drawn = CounterMetricFamily("computerrl_sampler_tokens", "Tokens by who drew them.", labels=("run", "sampler"))
        for found in looks:
            for one in found.samplers:
                drawn.add_metric((found.run, one.name), one.tokens)
        yield drawn
        yield _gauge("computerrl_seats_busy", "Seats that play.", {
            found.run: sum(1.0 for seat in found.seats if seat.trace) for found in looks
        })  # fmt: skip
        yield _gauge("computerrl_quarantined", "Seats, hosts, images and tasks in quarantine.", {
            found.run: float(len(found.quarantine)) for found in looks
        })  # fmt: skip
        for key, name, text in _OF_STEP:
            newest = {found.run: step.figures[key] for found in looks for step in found.curve if key in step.figures}
            yield _gauge(name, text, newest)
        of_batch = {found.run: step.success for found in looks for step in found.curve if step.success is not None}
        yield _gauge("computerrl_train_success_ratio", "Success of the newest step's training episodes.", of_batch)

    def _looks(self) -> list[RunNow]:
        going = {
            path for path, record in run_folder.all_runs(self._runs) if run_folder.state(path, record) == "running"
        }
        for path in [*self._readers.keys() - going]:
            self._readers.pop(path).close()
        found = []
        for path in sorted(going):
            try:
                found.append(self._readers.setdefault(path, RunReader(path)).look())
            except (ComputerRLError, OSError):
                continue  # it begins or ends in this moment; the next scrape sees it, or does not
        return found


def _gauge(name: str, text: str, values: dict[str, float]) -> GaugeMetricFamily:
    made = GaugeMetricFamily(name, text, labels=("run",))
    for run, value in values.items():
        made.add_metric((run,), value)
    return made
