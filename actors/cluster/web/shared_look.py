"""What all that watch a run share: one look a second, small pictures, and figures for Prometheus.

Invariant: the number of viewers changes no look. A viewer that reads slowly gets the newest state later, and nothing
piles up for it. The last viewer's leaving ends the looking. Pictures are bounded in number at work and in bytes.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import orjson
from PIL import Image
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from actors.cluster.output import clean, plainly
from actors.cluster.report.drawing import FIGURES, SUCCESS
from actors.cluster.runs import ledgers, run_folder
from actors.cluster.runs.run_reader import RunNow, RunReader, StepNow
from actors.replay.database import queries
from actors.replay.messages import Phase
from runtime.errors import ComputerRLError
from runtime.segments import read_blob

LOOK_S = 1.0
MOST_VIEWERS = 400  # of one run
MOST_BYTES = 32 << 20  # of all pictures that are kept
AT_ONCE = 2  # pictures that are made
WIDTH = 320  # pixels of a picture
MOST_PIXELS = 8192 * 8192  # of the screenshot that it is made of
_APART = {"seats", "curve"}
_PHASES = {Phase.RL: "RL step", Phase.PULSE: "pulse step", Phase.BC: "cloning step"}
_CODED = {"endings", "faults"}  # counts by a code, shown in plain words


class CrowdedError(ComputerRLError):
    """More viewers than one run is shown to."""


class Chart(msgspec.Struct, frozen=True):
    """A curve of one phase, over its own steps: what cloning and RL minimise has nothing in common."""

    title: str
    unit: str
    along: str  # what its steps are
    share: bool
    points: list[tuple[int, float]]


def charts(now: RunNow) -> list[Chart]:
    """The report's figures, of all phases that have two steps of one."""
    made = []
    for phase, along in _PHASES.items():
        steps = [step for step in now.curve if step.phase == phase]
        before = now.steps.get(phase, len(steps)) - len(steps)
        for figure in (SUCCESS, *FIGURES):
            if figure.phase in (None, phase):
                values = [_value(step, figure.keys) for step in steps]
                points = [(before + n, value) for n, value in enumerate(values, 1) if value is not None]
                if len(points) > 1:
                    made.append(Chart(figure.title, figure.unit, along, figure.share, points))
    return made


def _value(step: StepNow, keys: Sequence[str]) -> float | None:
    figures = {**step.figures, "success": step.success}
    return next((figures[key] for key in keys if key in figures), None)


class SharedLook:
    """Looks at one run for as long as it has viewers."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._looking: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        self._whole: dict[str, bytes] = {}  # part -> JSON
        self._numbers: dict[str, int] = {}  # part -> the look that changed it
        self._seats: dict[str, tuple[int, bytes]] = {}  # seat -> the look that changed it, JSON
        self._look = 0
        self._viewers = 0

    async def watch(self) -> AsyncGenerator[bytes, None]:
        """Events as a browser's EventSource reads them: all at first, then what changed. Raises CrowdedError."""
        if self._viewers >= MOST_VIEWERS:
            raise CrowdedError(f"{MOST_VIEWERS} viewers watch this run already")
        self._viewers += 1
        try:
            if self._looking is None:
                self._looking = asyncio.create_task(self._go_on())
            seen = 0
            while True:
                async with self._changed:
                    while self._look <= seen:
                        await self._changed.wait()
                    seen, events = self._look, self._since(seen)
                yield events
        finally:
            self._viewers -= 1
            if not self._viewers:
                await self.close()

    async def close(self) -> None:
        looking, self._looking = self._looking, None  # at once: another viewer may come meanwhile
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    def _since(self, seen: int) -> bytes:
        """What changed after look `seen`, as events; a comment where nothing did, so that a dead line is noticed."""
        parts = [b"event: " + name.encode() + b"\ndata: " + self._whole[name] + b"\n\n"
                 for name, number in self._numbers.items() if number > seen]  # fmt: skip
        seats = [raw for number, raw in self._seats.values() if number > seen]
        if seats:
            parts.append(b"event: seats\ndata: [" + b",".join(seats) + b"]\n\n")
        return b"".join(parts) or b": nothing new\n\n"

    async def _go_on(self) -> None:
        reader = RunReader(self._path)
        try:
            while True:
                try:
                    look: RunNow | str = await asyncio.to_thread(reader.look)
                except (ComputerRLError, OSError) as error:
                    look = str(error)  # shown on the page; the next look may see again
                async with self._changed:
                    self._note(look)
                    self._changed.notify_all()
                await asyncio.sleep(LOOK_S)
        finally:
            reader.close()

    def _note(self, now: RunNow | str) -> None:
        self._look += 1
        if isinstance(now, str):
            self._put("trouble", orjson.dumps(clean(now)))
            return
        for seat in now.seats:
            raw = orjson.dumps([_shown(getattr(seat, name)) for name in seat.__struct_fields__])
            if self._seats.get(seat.name, (0, b""))[1] != raw:
                self._seats[seat.name] = self._look, raw
        head = {name: getattr(now, name) for name in now.__struct_fields__ if name not in _APART}
        head |= {name: plainly(head[name]) for name in _CODED}
        self._put("run", orjson.dumps({name: _shown(value) for name, value in head.items()}))
        self._put("charts", orjson.dumps([_shown(chart) for chart in charts(now)]))
        self._put("trouble", orjson.dumps(clean(now.trouble)))

    def _put(self, name: str, raw: bytes) -> None:
        if self._whole.get(name) != raw:
            self._whole[name], self._numbers[name] = raw, self._look


def _shown(value: object) -> object:
    """`value` for JSON, with control characters and bidirectional overrides of its texts escaped."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(key)): _shown(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_shown(one) for one in value]
    if hasattr(value, "__struct_fields__"):
        return {name: _shown(getattr(value, name)) for name in value.__struct_fields__}
    return value


class Thumbnails:
    """The last screenshot of an episode, or what its model saw last, small."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Path, int], bytes] = OrderedDict()
        self._bytes = 0
        self._room = asyncio.Semaphore(AT_ONCE)

    async def of(self, run: Path, token: int) -> bytes | None:
        """A JPEG of the episode `token` of `run`; None where no screenshot of it is kept."""
        if (kept := self._kept.get((run, token))) is not None:
            self._kept.move_to_end((run, token))
            return kept
        async with self._room:
            made = await asyncio.to_thread(_made, run, token)
        if made is not None and (run, token) not in self._kept:
            self._kept[run, token] = made
            self._bytes += len(made)
            while self._bytes > MOST_BYTES:
                self._bytes -= len(self._kept.popitem(last=False)[1])
        return made


def _made(run: Path, token: int) -> bytes | None:
    try:
        with ledgers.opened(run) as db:
            steps = queries.steps_of(db, token)
        shots = [shot for ref in steps for shot in (*ref.pictures, ref.screenshot) if shot is not None]
        if not shots:
            return None
        return small(read_blob(run / "segments", shots[-1]))
    except (ComputerRLError, OSError, msgspec.DecodeError):
        return None  # its payload went meanwhile


def small(picture: bytes) -> bytes | None:
    """A JPEG of at most `WIDTH` pixels each way; None where `picture` is no JPEG or PNG of sane size."""
    try:
        with Image.open(BytesIO(picture), formats=("JPEG", "PNG")) as opened:
            if opened.width * opened.height > MOST_PIXELS:
                return None
            opened.draft("RGB", (WIDTH, WIDTH))
            opened.thumbnail((WIDTH, WIDTH))
            out = BytesIO()
            opened.convert("RGB").save(out, "JPEG", quality=60)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):  # a broken PNG is a SyntaxError
        return None
    return out.getvalue()


def _newest(key: str) -> Callable[[RunNow], Mapping[str, float]]:
    def of(now: RunNow) -> Mapping[str, float]:
        values = [value for step in now.curve if (value := _value(step, (key,))) is not None]
        return {"": values[-1]} if values else {}

    return of


# Kind, name, help, the label next to `run` ("" for none), and its values by that label.
_SERIES: tuple[tuple[Any, str, str, str, Callable[[RunNow], Mapping[str, float]]], ...] = (
    (CounterMetricFamily, "episodes", "Episodes with an outcome.", "lane", lambda now: now.episodes),
    (CounterMetricFamily, "faults", "Episodes that infrastructure broke.", "cause", lambda now: now.faults),
    (CounterMetricFamily, "groups_ended", "Groups by how they ended.", "ending", lambda now: now.endings),
    (CounterMetricFamily, "optimizer_steps", "Optimizer steps that stand.", "phase", lambda now: now.steps),
    (CounterMetricFamily, "trained_trajectories", "Trajectories by optimizer steps between playing and training.",
     "staleness", lambda now: now.staleness),
    (CounterMetricFamily, "sampler_tokens", "Tokens by who drew them.", "sampler",
     lambda now: {sampler.name: sampler.tokens for sampler in now.samplers}),
    (GaugeMetricFamily, "groups", "Groups that have not ended.", "state", lambda now: now.groups),
    (GaugeMetricFamily, "seat_time_seconds", "Where seats spent the last ten minutes.", "stage",
     lambda now: now.stages_s),
    (GaugeMetricFamily, "seats_busy", "Seats that play.", "", lambda now: {"": sum(bool(s.trace) for s in now.seats)}),
    (GaugeMetricFamily, "quarantined", "Hosts and tasks in quarantine.", "",
     lambda now: {"": len(now.quarantine)}),
    (GaugeMetricFamily, "loss", "Loss of the newest optimizer step.", "", _newest("loss")),
    (GaugeMetricFamily, "entropy_nats", "Entropy per token at the newest optimizer step.", "", _newest("entropy")),
    (GaugeMetricFamily, "kl_nats", "KL per token from the reference at the newest optimizer step.", "", _newest("kl")),
    (GaugeMetricFamily, "clip_ratio", "Share of clipped tokens in the newest optimizer step.", "",
     _newest("clip_fraction")),
    (GaugeMetricFamily, "train_success_ratio", "Success of the newest step's training episodes.", "",
     _newest("success")),
)  # fmt: skip


class RunMetrics(Collector):
    """All series of the runs below a folder that go on."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._readers: dict[Path, RunReader] = {}
        self._lock = threading.Lock()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def scrape(self) -> bytes:
        with self._lock:
            return generate_latest(self._registry)

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()

    def describe(self) -> list[Metric]:
        """Nothing is known before a look."""
        return []

    def collect(self) -> Iterator[Metric]:
        looks = self._looks()
        for kind, name, text, label, of in _SERIES:
            family = kind(f"computerrl_{name}", text, labels=("run", label) if label else ("run",))
            for look in looks:
                for what, value in of(look).items():
                    family.add_metric((look.run, str(what)) if label else (look.run,), value)
            yield family

    def _looks(self) -> list[RunNow]:
        going = {
            path for path, record in run_folder.all_runs(self._runs) if run_folder.state(path, record) == "running"
        }
        for path in [*self._readers.keys() - going]:
            self._readers.pop(path).close()
        looks = []
        for path in sorted(going):
            try:
                looks.append(self._readers.setdefault(path, RunReader(path)).look())
            except (ComputerRLError, OSError):
                continue  # it begins or ends in this moment; the next scrape sees it, or does not
        return looks
