"""`bench publish`: seconds from weights on disk, or in the sender's memory, to an engine that serves them.

Invariant: a weight sync counts only when the engine then names the new version and scores a prompt as the sent weights
do. Every time is of one engine that draws nothing else.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster import output
from actors.cluster.bench import engines, no_bars
from actors.cluster.bench.report import Measured, Target, median, show
from actors.cluster.config import models
from actors.cluster.runs import names
from actors.learner.messages import BroadcastPart, Ticket
from actors.sampler.config import SamplerSettings
from actors.sampler.engine.engine import StartedEngine
from actors.sampler.engine.gate import Gate
from actors.sampler.latest import Latest
from actors.sampler.weights import collective
from actors.sampler.weights.loader import Loader, difference
from policy.errors import EngineError
from runtime.errors import ConfigError
from runtime.logs.reader import read_logs
from runtime.logs.resumed import in_a_row
from runtime.messaging.message import Version

LOST_MOST = 0.02  # share of a sampler's time that loading weights may take
TIMEOUT_S = 120.0
OFF_BY_MOST = 1e-4  # of a log-probability, in float32
ADDRESS = "127.0.0.1"
PROMPT = [(5 + 7 * place) % 1000 for place in range(32)]


class PublishOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure."""

    widths: tuple[int, ...] = (128, 512)  # of models like the bundled one; parameters grow with its square
    times: int = 5  # publications of each way; the median counts
    run: str = ""  # a run whose samplers' lost time is told
    runs: str = "runs"


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """One way to one engine."""

    engine: str
    way: str
    parameters: int
    median_s: float | None
    longest_s: float
    off_by: float  # largest difference of a log-probability from what the sent weights make of the prompt


class LoadShare(msgspec.Struct, frozen=True, kw_only=True):
    """What loading took of the samplers' time in a run."""

    run: str
    loads: int
    load_s: float
    sampler_s: float
    share: float


class PublishResult(Measured, frozen=True, kw_only=True):
    """All ways."""

    published: list[Published]
    lost: LoadShare | None


def make_model(folder: Path, width: int, seed: int) -> int:
    """A random model like the bundled one but wider, with its tokenizer; the number of its parameters."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    no_bars()
    base = models.bundled()
    raw: dict[str, Any] = msgspec.json.decode((base / "config.json").read_bytes())
    raw |= {"hidden_size": width, "intermediate_size": 3 * width}
    torch.manual_seed(seed)
    network = Qwen2ForCausalLM(Qwen2Config(**{key: value for key, value in raw.items() if key != "architectures"}))
    network.save_pretrained(folder)
    (folder / "config.json").write_bytes(msgspec.json.encode(raw))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(base / name, folder / name)
    return sum(parameter.numel() for parameter in network.parameters())


def scored(folder: Path) -> list[float]:
    """What transformers makes of the prompt."""
    import torch
    from transformers import AutoModelForCausalLM

    no_bars()
    network: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logprobs = network(torch.tensor([PROMPT])).logits[0].log_softmax(-1)
    return [float(logprobs[place, PROMPT[place + 1]]) for place in range(len(PROMPT) - 1)]


class _Publisher:
    """One running engine that is given two sets of weights in turn."""

    def __init__(self, started: StartedEngine, settings: SamplerSettings, folders: Sequence[Path]) -> None:
        self._started, self._folders = started, folders
        self._loader = Loader(settings, Gate())
        self._step = 0

    async def publish(self, way: str, expected: Sequence[list[float]]) -> tuple[float, float]:
        """Seconds, and how far the engine is off afterwards. Raises EngineError when it serves something else."""
        self._step += 1
        which = self._step % 2
        version, client = Version(lineage=0, step=self._step), self._started.client
        began = time.monotonic()
        if way == "disk":
            verdict = await self._loader.load(client, Latest(version=version, location=str(self._folders[which])))
        else:
            await self._broadcast(version, self._folders[which], bucket=way == "buckets")
            verdict = await self._loader.judge(client, Latest(version=version, location=str(self._folders[which])))
        seconds = time.monotonic() - began
        if verdict.version != version:
            raise EngineError(f"after {way} the engine serves {verdict.version}, not {version}")
        return seconds, difference(await client.score(PROMPT, TIMEOUT_S), expected[which])

    async def _broadcast(self, version: Version, folder: Path, *, bucket: bool) -> None:
        from policy import broadcast, hf_folder

        tensors = await asyncio.to_thread(hf_folder.read, folder)
        told = broadcast.described(tensors)
        name = f"publish-{version}"
        group = broadcast.SendingGroup(name, 1, address=ADDRESS, backend="gloo", timeout_s=TIMEOUT_S)

        def send() -> None:
            group.join()
            group.send(list(tensors.values()), bucket=bucket)

        unit = "bucket" if bucket else "tensor"
        part = BroadcastPart(names=told.names, dtypes=told.dtypes, shapes=told.shapes)
        ticket = Ticket(
            group=name, address=ADDRESS, port=group.port, rank=1, size=2, backend="gloo", parts=[part], unit=unit,
            form_s=TIMEOUT_S, send_s=TIMEOUT_S, checksums={},
        )  # fmt: skip

        async def take() -> None:
            await collective.enter(self._started.client, ticket)
            await collective.take(self._started.client, ticket, str(version), flush=True)

        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(asyncio.to_thread(send))
                both.create_task(take())
        finally:
            group.close()


async def _engine(kind: str, folders: Sequence[Path], parameters: int, times: int) -> list[Published]:
    settings = engines.settings_of(kind, folders[0])
    found = []
    expected = [await asyncio.to_thread(scored, folder) for folder in folders]
    async with engines.started(kind, settings) as engine:
        publisher = _Publisher(engine, settings, folders)
        for way in ("disk", "tensors", "buckets") if kind == engines.SGLANG else ("disk",):
            output.line(f"  {kind}, {parameters / 1e6:.1f} M parameters, by {way}", to=sys.stderr)
            results = [await publisher.publish(way, expected) for _ in range(times)]
            seconds = [one for one, _ in results]
            found.append(
                Published(
                    engine=kind,
                    way=way,
                    parameters=parameters,
                    median_s=median(seconds),
                    longest_s=max(seconds),
                    off_by=max(off for _, off in results),
                )
            )
    return found


def lost_in(run: Path) -> LoadShare:
    """The share of the samplers' time that a run's loads took: an upper bound where an engine draws beside them."""
    load_s, loads = 0.0, 0
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    for line in in_a_row(read_logs(run)):
        actor = str(line.get("actor", ""))
        if actor.startswith("sampler/"):
            first.setdefault(actor, float(line["t"]))
            last[actor] = float(line["t"])
            if line["event"] == "weights_loaded":
                loads, load_s = loads + 1, load_s + float(line["load_s"])
    sampler_s = sum(last[name] - first[name] for name in first)
    return LoadShare(
        run=run.name, loads=loads, load_s=load_s, sampler_s=sampler_s, share=load_s / sampler_s if sampler_s else 0.0
    )


def widths_of(text: str) -> tuple[int, ...]:
    """The numbers of a comma-separated list; none where there are none. Raises ConfigError."""
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ConfigError(f"--widths {text}: whole numbers with commas between them, for example 128,512") from None


async def measure(wanted: PublishOptions) -> PublishResult:
    """All ways and sizes, one after the other. Raises ConfigError."""
    if wanted.times < 1 or not wanted.widths or any(width < 64 or width % 64 for width in wanted.widths):
        raise ConfigError("--times counts from 1, and --widths are multiples of 64, one at least")
    lost = lost_in(names.find(Path(wanted.runs), wanted.run)) if wanted.run else None
    load = os.getloadavg()[0]
    published: list[Published] = []
    left_out: dict[str, str] = {}
    kinds = ["embedded", engines.SGLANG]
    if why := engines.lacks(engines.SGLANG):
        left_out[engines.SGLANG] = why
        kinds.remove(engines.SGLANG)
    for width in wanted.widths:
        with tempfile.TemporaryDirectory(prefix="crl-bench-") as place:
            folders = [Path(place) / str(seed) for seed in (0, 1)]
            counts = [await asyncio.to_thread(make_model, folder, width, seed) for seed, folder in enumerate(folders)]
            for kind in kinds:
                published += await _engine(kind, folders, counts[0], wanted.times)
    worst = max((one.off_by for one in published), default=None)
    targets = [Target(name="log-probability off by", measured=worst, bound=OFF_BY_MOST, unit="")]
    if lost is not None:
        targets.append(Target(name="sampler time lost", measured=100 * lost.share, bound=100 * LOST_MOST, unit="%"))
    return PublishResult(load_at_start=load, published=published, lost=lost, left_out=left_out, targets=targets)


def run(wanted: PublishOptions, *, as_json: bool) -> int:
    """Measure and print; 1 when a target is missed."""
    return show(asyncio.run(measure(wanted)), _tell, as_json=as_json)


def _tell(found: PublishResult) -> None:
    output.table(
        ("ENGINE", "WAY", "PARAMETERS", "MEDIAN", "LONGEST", "OFF BY"),
        [
            (
                one.engine,
                one.way,
                f"{one.parameters / 1e6:.1f} M",
                f"{one.median_s:.3f} s",
                f"{one.longest_s:.3f} s",
                f"{one.off_by:.1e}",
            )
            for one in found.published
        ],
    )
    if (lost := found.lost) is not None:
        output.prose(
            f"{lost.run}: {lost.loads} loads took {lost.load_s:.1f} s of {lost.sampler_s:.0f} s of its samplers"
        )
