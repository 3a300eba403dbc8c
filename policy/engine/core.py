"""The engine without threads or HTTP: sequences go in, `step` computes one forward pass and draws tokens.

Invariant: weights change only between passes, so every token comes from exactly one version. The version's name is
recorded with the token. Prefix blocks are filled only from rows that one version computed alone.

The reported log-probability is log_softmax(logits / temperature) at the drawn token, whatever tokens its share leaves
out. A greedy draw reports it at temperature 1, as SGLang does. A token of zero probability is never drawn.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec
import torch
from torch import Tensor

from policy.engine.cache import KeyValueCache, PrefixIndex
from policy.engine.model import Chunk, Decoder, EngineWeights
from policy.engine.scheduler import FOLLOW, MIXED, Finish, Scheduler, Sequence, SequenceWork
from policy.errors import EngineError
from policy.vision.eyes import Eyes


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes; defaults suit a model of about a million parameters on one CPU thread."""

    model_path: str
    weight_version: str = "default"
    device: str = "cpu"
    dtype: str = "float32"  # of weights, keys and values: float32 or bfloat16
    max_running_requests: int = 32  # sequences in one forward pass
    max_queued_requests: int = 256  # sequences in the line; more are refused with status 503
    context_length: int | None = None  # tokens; None: the model's own
    cache_tokens: int = 32_768  # tokens in the prefix pool
    block_tokens: int = 8  # granularity of prefix reuse
    prefill_tokens: int = 2_048  # prompt tokens in one forward pass
    max_pinned: int = 4  # weight versions kept with the current one


class EngineFigures(msgspec.Struct):
    """Counts since start, written by the compute thread."""

    passes: int = 0
    max_pass_sequences: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    finished: int = 0
    aborted: int = 0


_GREEDY_BELOW = 1e-6  # SGLang treats smaller temperatures as greedy
_BELOW_ONE = 1.0 - 2.0**-30  # keeps the target strictly inside the distribution's mass


@torch.inference_mode()
def draw(
    logits: Tensor, temperatures: list[float], uniforms: list[float], shares: list[float]
) -> tuple[list[int], list[float]]:
    """Draw one token per row of `logits` [rows, vocab] by inverting the distribution function at `uniforms` in [0, 1).

    A row draws from its likeliest tokens alone that together have its share (top-p, A. Holtzman et al., 2019).
    Returns token ids and their log-probabilities; the latter are not finite where the logits are not.
    """
    greedy = [temperature < _GREEDY_BELOW for temperature in temperatures]
    if any(temperature != 1.0 for temperature in temperatures):
        divisors = [1.0 if cold else temperature for cold, temperature in zip(greedy, temperatures, strict=True)]
        logits = logits / torch.tensor(divisors, dtype=logits.dtype, device=logits.device)[:, None]
    logprobs = torch.log_softmax(logits, dim=-1)
    if all(greedy):
        tokens = logits.argmax(-1, keepdim=True)
    else:
        likely = logprobs.exp()
        if any(share != 1.0 for share in shares):
            likely = _within(likely, shares)
        mass = likely.cumsum(-1, dtype=torch.float64)
        points = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)[:, None]
        tokens = torch.searchsorted(mass, points * mass[:, -1:] * _BELOW_ONE, right=True)
        tokens = tokens.clamp_(max=logits.shape[-1] - 1)
        if any(greedy):
            cold_rows = torch.tensor(greedy, device=logits.device)[:, None]
            tokens = torch.where(cold_rows, logits.argmax(-1, keepdim=True), tokens)
    return tokens[:, 0].tolist(), logprobs.gather(1, tokens)[:, 0].tolist()


def _within(likely: Tensor, shares: list[float]) -> Tensor:
    """`likely` [rows, vocab], 0 for the tokens outside the share of their row."""
    top_p = torch.tensor(shares, dtype=torch.float64, device=likely.device)[:, None]
    ordered, order = likely.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1, dtype=torch.float64) - ordered
    return torch.zeros_like(likely).scatter(-1, order, ordered.masked_fill(before >= top_p, 0.0))


@torch.inference_mode()
def score(logits: Tensor, successors: list[int]) -> list[float]:
    """Log-probabilities (temperature 1) of the token that follows each row of `logits` [rows, vocab]."""
    index = torch.tensor(successors, device=logits.device)[:, None]
    return torch.log_softmax(logits, dim=-1).gather(1, index)[:, 0].tolist()


def chunk_of(work: SequenceWork, eyes: Eyes | None) -> Chunk:
    """What is to be computed, with the embeddings of its pictures."""
    sequence, start, end, wanted = work
    chunk = Chunk(sequence.row or 0, start, sequence.ids[start:end], wanted)
    if sequence.positions is None or eyes is None:
        return chunk
    seen: list[tuple[int, torch.Tensor]] = []
    for picture in sequence.pictures:
        first, last = max(start, picture.at), min(end, picture.at + picture.tokens)
        if first < last:
            (whole,) = eyes.see([(picture.digest, picture.png)])
            seen.append((first - start, whole[first - picture.at : last - picture.at]))
    return chunk._replace(positions=[axis[start:end] for axis in sequence.positions], seen=seen)


@dataclass(slots=True)
class Resident:
    """Weights in memory under a name; `serial` tells apart reloads under one name."""

    serial: int
    name: str
    path: str
    weights: EngineWeights


class EngineCore:
    """One model, several resident versions of its weights. Not thread safe."""

    def __init__(self, options: EngineOptions, weights: EngineWeights) -> None:
        arch = weights.arch
        device = torch.device(options.device)
        self.options, self.arch = options, arch
        self.length = min(options.context_length or arch.context, arch.context)
        block = options.block_tokens
        blocks = max(1, options.cache_tokens // block)
        self.cache = KeyValueCache(
            arch,
            rows=options.max_running_requests,
            length=self.length,
            blocks=blocks,
            block=block,
            device=device,
            dtype=weights.embedding.dtype,
        )
        self.prefix = PrefixIndex(blocks, block)
        self.scheduler = Scheduler(
            rows=options.max_running_requests,
            max_queued_requests=options.max_queued_requests,
            prefill_tokens=options.prefill_tokens,
            block=block,
        )
        self.figures = EngineFigures()
        self._decoder = Decoder(arch, self.cache, device)
        self._serial = 0
        self.current = Resident(0, options.weight_version, options.model_path, weights)
        self.pinned: dict[str, Resident] = {}
        self._bound: dict[int, Resident] = {}  # lane -> weights that sequences in flight are bound to

    # --- weights -------------------------------------------------------------------------------------------------

    def install(self, weights: EngineWeights, name: str | None, path: str, *, retract: bool = False) -> None:
        """Make `weights` the current ones; running sequences go on with them from the next pass.

        They keep the old weights' keys and values, or with `retract` have them computed again.
        """
        weights = self._taken(weights)
        if retract:
            self.scheduler.retract()
        old = self.current
        self._serial += 1
        self.current = Resident(self._serial, name if name is not None else old.name, path, weights)
        for sequence in self.scheduler.running:
            if sequence.lane == FOLLOW:
                sequence.kv_weights = MIXED
        if not any(kept.serial == old.serial for kept in self.pinned.values()):
            self.prefix.drop(old.serial)

    def pin(self, name: str, path: str, weights: EngineWeights | None) -> None:
        """Keep a version resident; `weights` None binds the current ones. Raises EngineError beyond `max_pinned`."""
        if name in self.pinned:
            return
        if len(self.pinned) >= self.options.max_pinned:
            raise EngineError(f"{len(self.pinned)} weight versions are pinned already: {sorted(self.pinned)}")
        if weights is None:
            self.pinned[name] = self.current
            return
        weights = self._taken(weights)
        self._serial += 1
        self.pinned[name] = Resident(self._serial, name, path, weights)

    def unpin(self, name: str) -> None:
        """Let a pinned version go; sequences bound to it finish with it."""
        kept = self.pinned.pop(name, None)
        if kept is not None and kept.serial != self.current.serial:
            self.prefix.drop(kept.serial)

    def _taken(self, weights: EngineWeights) -> EngineWeights:
        """New weights, with the eyes that are there where theirs are the same. Raises EngineError for another shape."""
        alike = ("vocab", "hidden", "layers", "heads", "kv_heads", "head_dim", "vision", "mrope")
        for field in (*alike, "ffn", "rope_base", "norm_eps"):
            ours, theirs = getattr(self.arch, field), getattr(weights.arch, field)
            if ours != theirs:
                raise EngineError(f"the new weights have {field} {theirs}, the running model has {ours}")
        eyes = self.current.weights.eyes
        same = eyes is not None and weights.eyes is not None and eyes.same(weights.eyes)
        return replace(weights, eyes=eyes) if same else weights

    # --- sequences -----------------------------------------------------------------------------------------------

    def submit(self, sequences: list[Sequence], version: str | None = None) -> None:
        """Queue sequences, all or none, bound to a resident `version` or following the newest weights.

        Raises:
            EngineBusy: the line is full.
            EngineError: the version is not resident.
        """
        lane = FOLLOW if version is None else self._bind(version)
        for sequence in sequences:
            sequence.lane = lane
        self.scheduler.submit(sequences)

    def abort(self, matches: Callable[[Sequence], bool]) -> list[Sequence]:
        ended = self.scheduler.abort(matches)
        now = time.monotonic()
        for sequence in ended:
            sequence.finished_s = now
        self.figures.aborted += len(ended)
        self._forget_unused()
        return ended

    def pause(self, mode: str) -> list[Sequence]:
        """Stop computing: "abort" ends what is in flight (returned), "retract" requeues it, "in_place" keeps it."""
        self.scheduler.paused = True
        if mode == "retract":
            self.scheduler.retract()
        return self.abort(lambda _: True) if mode == "abort" else []

    def flush(self) -> None:
        """Empty the prefix index. Raises EngineError while sequences are running or waiting."""
        if self.scheduler.running or (self.scheduler.waiting and not self.scheduler.paused):
            raise EngineError("Flush cache failed: requests are still running.")
        self.prefix.clear()

    def step(self) -> list[Sequence]:
        """Compute one forward pass; returns sequences that ended and streaming ones that grew."""
        for sequence in self.scheduler.admit():
            self._start(sequence)
        works = self.scheduler.plan()
        if not works:
            return []
        resident = self._resident(works[0].sequence.lane)
        logits = self._decoder.forward(resident.weights, [chunk_of(work, resident.weights.eyes) for work in works])
        drawn = self._read(works, logits, resident)
        now = time.monotonic()
        changed = [sequence for sequence in drawn if self._settle(sequence, now) or sequence.stream]
        self.figures.passes += 1
        self.figures.max_pass_sequences = max(self.figures.max_pass_sequences, len(works))
        return changed

    def _bind(self, name: str) -> int:
        resident = self.pinned.get(name)
        if resident is None and self.current.name == name:
            resident = self.current
        if resident is None:
            known = sorted({self.current.name, *self.pinned})
            raise EngineError(f"weight version {name!r} is not resident; resident are {known}")
        self._bound[resident.serial] = resident
        return resident.serial

    def _resident(self, lane: int) -> Resident:
        return self.current if lane == FOLLOW else self._bound[lane]

    def _start(self, sequence: Sequence) -> None:
        """Fill a newly admitted sequence's row from the prefix index."""
        serial = self._resident(sequence.lane).serial
        sequence.kv_weights = serial
        sequence.admitted_s = sequence.admitted_s or time.monotonic()
        blocks = self.prefix.match(serial, sequence.keys, sequence.reusable)
        if blocks and sequence.row is not None:
            self.cache.load(sequence.row, blocks)
        sequence.computed = len(blocks) * self.options.block_tokens
        if sequence.cached is None:
            sequence.cached = sequence.computed
            self.figures.prompt_tokens += sequence.prompt_len
            self.figures.cached_tokens += sequence.computed

    def _read(self, works: list[SequenceWork], logits: torch.Tensor, resident: Resident) -> list[Sequence]:
        """Take scores and drawn tokens from the logits; returns sequences that got a token or need none."""
        ready: list[Sequence] = []
        rows: list[int] = []
        place = 0
        for sequence, _, end, wanted in works:
            first = end - wanted
            prompt_done = sequence.computed < sequence.prompt_len <= end
            sequence.computed = end
            sequence.version = resident.name
            if sequence.score_at is not None and wanted:
                successors = sequence.ids[first + 1 : min(end + 1, sequence.prompt_len)]
                if successors:
                    sequence.prompt_logprobs += score(logits[place : place + len(successors)], successors)
                sequence.score_at = None if end >= sequence.prompt_len else end
            place += wanted
            if end == len(sequence.ids):
                ready.append(sequence)
                rows.append(place - 1)
            if prompt_done:
                self._share(sequence, sequence.prompt_len)
        drawing = [i for i, sequence in enumerate(ready) if sequence.draw.max_new_tokens]
        if drawing:
            picked = [rows[i] for i in drawing]
            part = logits if picked == list(range(len(logits))) else logits[picked]
            owners = [ready[i] for i in drawing]
            tokens, logprobs = draw(
                part,
                [owner.draw.temperature for owner in owners],
                [owner.random.random() for owner in owners],
                [owner.draw.top_p for owner in owners],
            )
            for owner, token, logprob in zip(owners, tokens, logprobs, strict=True):
                self._take(owner, token, logprob, resident.name)
        return ready

    def _take(self, sequence: Sequence, token: int, logprob: float, version: str) -> None:
        if not math.isfinite(logprob):
            # Numbers that are not finite would reach later sequences of this row through masked products.
            self.cache.wipe(sequence.row or 0)
            self.prefix.drop(sequence.kv_weights)
            sequence.kv_weights = MIXED
            sequence.finish = Finish("abort", message="the model's logits are not finite", status=500)
            return
        if not sequence.logprobs:
            sequence.first_token_s = time.monotonic()
        sequence.append(token, logprob, version)
        self.figures.generated_tokens += 1

    def _settle(self, sequence: Sequence, now: float) -> bool:
        """Release a sequence that has ended; says whether it has."""
        if sequence.finish is None and sequence.draw.max_new_tokens:
            return False
        sequence.finish = sequence.finish or Finish("length")
        sequence.finished_s = now
        self._share(sequence, sequence.computed)
        self.scheduler.release(sequence)
        self.figures.finished += 1
        self._forget_unused()
        return True

    def _share(self, sequence: Sequence, tokens: int) -> None:
        """Put whole blocks of the first `tokens` of a row into the prefix index."""
        if sequence.kv_weights == MIXED or sequence.row is None:
            return
        first, blocks = self.prefix.insert(sequence.kv_weights, sequence.keys[:tokens])
        if blocks:
            self.cache.store(sequence.row, first, blocks)

    def _forget_unused(self) -> None:
        if not self._bound:
            return
        live = {sequence.lane for sequence in (*self.scheduler.running, *self.scheduler.waiting)}
        kept = {self.current.serial, *(resident.serial for resident in self.pinned.values())}
        for serial in [serial for serial in self._bound if serial not in live]:
            del self._bound[serial]
            if serial not in kept:
                self.prefix.drop(serial)
