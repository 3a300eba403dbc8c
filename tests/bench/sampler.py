"""`make bench NAME=sampler`: what the engines behind a sampler draw, on the same concurrent episodes.

Every engine gets the same episodes: prompts that begin alike and grow by the drawn answer and a new
observation, answers of one length. Tokens per second are drawn tokens over wall time, from the first request on.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster import output
from actors.cluster.config import models
from actors.errors import SamplerError
from actors.sampler.config import EmbeddedConfig, SamplersConfig, SamplerSettings, SglangConfig
from actors.sampler.engine import StartedEngine, engine_of, interpreter
from actors.sampler.messages import Weights
from policy.architecture import read_architecture
from runtime.clock import RealClock
from runtime.errors import ConfigError
from runtime.messaging.message import Version
from tests.bench import stage
from tests.bench.report import Measured, Target, median, percentile, show

ENGINES = ("embedded", "sglang", "batched")
FASTER = 3.0  # how many times transformers' batched generate the embedded engine is to be
TIMEOUT_S = 600.0
Draw = Callable[[list[int]], Awaitable[tuple[list[int], int]]]  # prompt ids -> drawn ids, cached prompt tokens


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The episodes, and who plays them."""

    model: str = ""
    engines: str = ",".join(ENGINES)
    episodes: int = 16  # at the same time
    steps: int = 6
    first_tokens: int = 320  # of the prompt of every first step, of which `shared_tokens` are the same for all
    shared_tokens: int = 160
    more_tokens: int = 48  # of a new observation
    answer_tokens: int = 32
    seed: int = 0


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine did."""

    engine: str
    tokens: int
    wall_s: float
    tokens_per_s: float
    latency_p50_s: float | None
    latency_p95_s: float | None
    prompt_tokens: int
    cached_share: float | None  # of prompt tokens; None where nothing is kept between requests
    start_s: float | None  # from the start of its process to the first drawn token
    episodes: int


class SamplerResult(Measured, frozen=True, kw_only=True):
    """All engines."""

    model: str
    drawn: list[Drawn]


class EpisodePrompts:
    """The prompts, and counts of what was drawn for them."""

    def __init__(self, wanted: Options, vocabulary: int) -> None:
        self._wanted = wanted
        self._rng = random.Random(wanted.seed)
        self._vocabulary = vocabulary
        shared = self._some(wanted.shared_tokens)
        own = wanted.first_tokens - wanted.shared_tokens
        self.prompts = [shared + self._some(own) for _ in range(wanted.episodes)]
        self._new = [[self._some(wanted.more_tokens) for _ in range(wanted.steps)] for _ in self.prompts]
        self._waits: list[float] = []
        self._tokens = self._asked = 0
        self._began = time.monotonic()

    def _some(self, count: int) -> list[int]:
        return [self._rng.randrange(3, self._vocabulary) for _ in range(count)]

    def grown(self, episode: int, step: int, prompt: list[int], answer: list[int]) -> list[int]:
        """The prompt of the step after `step`, of which `answer` is counted."""
        self._tokens += len(answer)
        self._asked += len(prompt)
        return [*prompt, *answer, *self._new[episode][step]]

    def waited(self, since: float) -> None:
        """Count the wait for a request."""
        self._waits.append(time.monotonic() - since)

    def drawn(self, engine: str, start_s: float, cached: int | None) -> Drawn:
        """What it comes to now that all episodes have ended; `cached` tokens of prompts were kept between requests."""
        wall_s = time.monotonic() - self._began
        return Drawn(
            engine=engine,
            tokens=self._tokens,
            wall_s=wall_s,
            tokens_per_s=self._tokens / wall_s,
            latency_p50_s=median(self._waits),
            latency_p95_s=percentile(self._waits, 0.95),
            prompt_tokens=self._asked,
            cached_share=None if cached is None else cached / self._asked,
            start_s=start_s,
            episodes=self._wanted.episodes,
        )


SGLANG = "sglang"


def lacks(kind: str) -> str:
    """What this machine lacks to start an engine of `kind`; "" where it lacks nothing."""
    if kind != SGLANG:
        return ""
    try:
        interpreter("")
    except ConfigError as error:
        return str(error)
    return ""


@asynccontextmanager
async def started(kind: str, wanted: Options, model: Path) -> AsyncIterator[StartedEngine]:
    """An engine of `kind` in a process and folder of its own. Raises ConfigError where it does not start."""
    engine_config: Any = SglangConfig() if kind == SGLANG else EmbeddedConfig()
    samplers = SamplersConfig(
        engine=engine_config, max_running_requests=max(32, wanted.episodes), generate_timeout_s=TIMEOUT_S
    )
    settings = SamplerSettings(samplers=samplers, model=str(model), replay="")
    with tempfile.TemporaryDirectory(prefix="crl-bench-") as folder:
        engine = engine_of(settings, f"bench-{kind}", Path(folder), RealClock(), print)
        assert isinstance(engine, StartedEngine)
        try:
            try:
                await engine.up(Weights(version=Version(lineage=0, step=0), location=settings.model))
            except SamplerError as error:
                raise ConfigError(f"{kind} does not start: {error}") from None
            yield engine
        finally:
            await engine.down()


async def by_engine(kind: str, wanted: Options, model: Path, vocabulary: int) -> Drawn:
    """All episodes at once on an engine of its own process."""
    began = time.monotonic()
    async with started(kind, wanted, model) as engine:
        start_s = time.monotonic() - began

        async def draw(prompt: list[int]) -> tuple[list[int], int]:
            body = {"input_ids": prompt, "return_logprob": True, "sampling_params": _params(wanted)}
            answer = await engine.client.generate(body, TIMEOUT_S)
            return answer.output_ids, answer.meta_info.cached_tokens

        await draw([3, 4, 5])
        return await _play(kind, wanted, vocabulary, draw, start_s)


def _params(wanted: Options) -> dict[str, Any]:
    return {"temperature": 1.0, "max_new_tokens": wanted.answer_tokens, "ignore_eos": True}


async def _play(kind: str, wanted: Options, vocabulary: int, draw: Draw, start_s: float) -> Drawn:
    episodes, cached = EpisodePrompts(wanted, vocabulary), [0]

    async def one(index: int) -> None:
        prompt = episodes.prompts[index]
        for step in range(wanted.steps):
            asked = time.monotonic()
            answer, kept = await draw(prompt)
            episodes.waited(asked)
            cached[0] += kept
            prompt = episodes.grown(index, step, prompt, answer)

    async with asyncio.TaskGroup() as group:
        for index in range(wanted.episodes):
            group.create_task(one(index))
    return episodes.drawn(kind, start_s, cached[0])


def by_transformers(wanted: Options, model: Path, vocabulary: int) -> Drawn:
    """The episodes in step with each other as one batch, by transformers' generate."""
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig
    from transformers.utils.logging import disable_progress_bar

    torch.set_num_threads(1)
    disable_progress_bar()
    began = time.monotonic()
    network: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    config = GenerationConfig(
        do_sample=True, temperature=1.0, top_k=0, min_new_tokens=wanted.answer_tokens,
        max_new_tokens=wanted.answer_tokens, pad_token_id=0, eos_token_id=None,
    )  # fmt: skip
    start_s = time.monotonic() - began
    episodes = EpisodePrompts(wanted, vocabulary)
    prompts = episodes.prompts
    with torch.no_grad():
        for step in range(wanted.steps):
            ids = torch.tensor(prompts)  # all prompts of a step have one length
            asked = time.monotonic()
            out = network.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
            episodes.waited(asked)
            answers = out[:, ids.shape[1] :].tolist()
            prompts = [episodes.grown(at, step, prompts[at], answer) for at, answer in enumerate(answers)]
    return episodes.drawn("batched", start_s, None)


async def measure(wanted: Options) -> SamplerResult:
    """All wanted engines, one after the other. Raises ConfigError."""
    model = models.locate(wanted.model or "")
    shape = read_architecture(model)
    longest = wanted.first_tokens + wanted.steps * (wanted.more_tokens + wanted.answer_tokens)
    if longest > shape.context:
        raise ConfigError(f"the last prompt has {longest} tokens, the model takes {shape.context}")
    load = os.getloadavg()[0]
    drawn: list[Drawn] = []
    left_out: dict[str, str] = {}
    for kind in stage.known("--engines", wanted.engines, ENGINES):
        if why := lacks(kind):
            left_out[kind] = why
            continue
        output.line(f"  {kind}: {wanted.episodes} episodes of {wanted.steps} steps", to=sys.stderr)
        if kind in ("embedded", "sglang"):
            drawn.append(await by_engine(kind, wanted, model, shape.vocab))
        else:
            drawn.append(await asyncio.to_thread(by_transformers, wanted, model, shape.vocab))
    rates = {one.engine: one.tokens_per_s for one in drawn}
    targets = []
    if "embedded" in rates and "batched" in rates:
        ratio = rates["embedded"] / rates["batched"]
        name = "embedded engine over batched generate"
        targets.append(Target(name=name, measured=ratio, bound=FASTER, unit="times", at_least=True))
    return SamplerResult(load_at_start=load, model=str(model), drawn=drawn, left_out=left_out, targets=targets)


def run(wanted: Options) -> int:
    """Measure and print; 1 when the target is missed."""
    if min(wanted.episodes, wanted.steps, wanted.answer_tokens) < 1:
        raise ConfigError("--episodes, --steps and --answer count from 1")
    return show(asyncio.run(measure(wanted)))
