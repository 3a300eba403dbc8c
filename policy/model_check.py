"""Compares a model folder as learner and engine compute it with transformers, for `computerrl model check`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from policy import hf_folder, tensorfiles
from policy.architecture import Architecture, ModelVerdict, read_architecture
from policy.chat_process import MOST_TURNS
from policy.engine.cache import KeyValueCache
from policy.engine.core import EngineCore, EngineOptions
from policy.engine.model import Chunk, Decoder, load_weights
from policy.engine.scheduler import Draw, Sequence
from policy.hf_folder import DTYPES
from policy.megatron.model import MicroBatchRunner, PolicyModel, whole_tensors
from policy.megatron.ranks import ensure_parallel
from policy.packing import MicroBatch, PackedSample
from policy.tokenizer import Tokenizer
from runtime.errors import ComputerRLError

EXACT, RELATIVE = 1e-4, 1e-5  # float32: a logit may differ by so much, or by so much of the largest logit
ROUNDED = 1.5  # bfloat16: our rms distance from float32 in that of transformers' bfloat16
GREEDY_TOKENS = 16
QUESTION = "What is the capital of France?"
_CPU = torch.device("cpu")
_LENGTHS = (3, 33, 64)  # of the compared sequences, in tokens


def compare(folder: Path, dtype: str, report: Callable[[str], None]) -> ModelVerdict:
    """Look at `folder`, computing in `dtype`. Raises ConfigError for what is not covered."""
    arch = read_architecture(folder)
    verdict = ModelVerdict(architecture=arch.style)
    generator = torch.Generator().manual_seed(0)
    longest = min(arch.context, max(_LENGTHS))
    ids = [torch.randint(arch.vocab, (min(n, longest),), generator=generator).tolist() for n in _LENGTHS]
    tokenizer = Tokenizer.load(folder)
    prompt = tokenizer.prompt_ids(QUESTION)
    verdict.chat = _refused(tokenizer)
    try:
        report("the engine loads, computes and draws")
        engine, drawn = _engine(folder, arch, dtype, ids, prompt)
        report("the learner loads, computes and exports")
        learner, changed = _learner(folder, arch, dtype, ids)
    except ComputerRLError as error:
        verdict.why = str(error)
        return verdict
    verdict.loads = True
    report("transformers computes")
    exact, greedy = _reference(folder, torch.float32, ids, [*prompt, *drawn])
    rounded = None if dtype == "float32" else _reference(folder, DTYPES[dtype], ids, [*prompt, *drawn])[0]
    reasons = _differences(verdict, {"engine": engine, "learner": learner}, exact, rounded)
    greedy = greedy[len(prompt) - 1 : -1]
    missed = greedy.max(-1).values - greedy[range(len(drawn)), drawn]
    margin = _limit(exact) if rounded is None else 2 * (verdict.max_logit_diff or 0.0)
    verdict.generates = not changed and bool(drawn) and bool((missed <= margin).all())
    if changed:
        reasons.append(f"its export differs in {changed}")
    elif not verdict.generates:
        reasons.append(
            f"token {int((missed > margin).int().argmax())} of the greedy answer is not that of transformers"
        )
    verdict.why = "; ".join(reasons)
    return verdict


def _refused(tokenizer: Tokenizer) -> list[str]:
    """What its chat template can't be asked for, a line each."""
    lines = ["a system message: it goes in front of the first question"] if tokenizer.folds_system else []
    for turns in range(1, MOST_TURNS + 1):
        if why := tokenizer.refused(turns, system=True):
            return [*lines, f"{turns} questions in a conversation: {why}"]
    return lines


def _limit(exact: list[Tensor]) -> float:
    return max(EXACT, RELATIVE * max(float(logits.abs().max()) for logits in exact))


def _differences(
    verdict: ModelVerdict, ours: dict[str, list[Tensor]], exact: list[Tensor], rounded: list[Tensor] | None
) -> list[str]:
    """Which part's logits are too far from transformers', a line each; the largest difference goes to `verdict`."""
    reasons, off = [], {name: _apart(logits, exact) for name, logits in ours.items()}
    verdict.max_logit_diff = max(float(differences.abs().max()) for differences in off.values())
    for name, differences in off.items():
        size, limit, measure = float(differences.abs().max()), _limit(exact), "a logit"
        if rounded is not None:
            size, limit, measure = _rms(differences), ROUNDED * _rms(_apart(rounded, exact)), "logits (rms)"
        if not size <= limit:
            reasons.append(f"the {name} differs from transformers by {size:.3g} in {measure}, more than {limit:.3g}")
    return reasons


def _engine(
    folder: Path, arch: Architecture, dtype: str, ids: list[list[int]], prompt: list[int]
) -> tuple[list[Tensor], list[int]]:
    """Its logits at every position of each sequence, and its greedy answer to `prompt`."""
    weights = load_weights(folder, _CPU, DTYPES[dtype])
    length = min(arch.context, max(len(prompt) + GREEDY_TOKENS, *map(len, ids)))
    options = EngineOptions(
        model_path=str(folder), dtype=dtype, max_running_requests=1, context_length=length, cache_tokens=64
    )
    core = EngineCore(options, weights)
    draw = Draw(GREEDY_TOKENS, 0.0, frozenset(arch.eos_ids), 0)
    answer = Sequence(rid="check", ids=list(prompt), draw=draw)
    core.submit([answer])
    while answer.finish is None:
        core.step()
    cache = KeyValueCache(
        arch, rows=len(ids), length=length, blocks=1, block=8, device=_CPU, dtype=weights.embedding.dtype
    )
    chunks = [Chunk(row, 0, sequence, len(sequence)) for row, sequence in enumerate(ids)]
    logits = Decoder(arch, cache, _CPU).forward(weights, chunks)
    return list(logits.split(list(map(len, ids)))), answer.output


def _learner(folder: Path, arch: Architecture, dtype: str, ids: list[list[int]]) -> tuple[list[Tensor], str]:
    """Its logits at all but the last position of each sequence, and the first tensor that an export changes, or ""."""
    ensure_parallel(0)
    tensors = hf_folder.read(folder)
    model = PolicyModel(arch, dtype)
    model.load_hf(tensors, arch)
    batch = MicroBatch(samples=[PackedSample(ids=each, response_len=len(each) - 1, weight=1.0) for each in ids])
    logits = MicroBatchRunner(model, _CPU, 1).read([batch], lambda inputs, rows: inputs.by_sample(rows.logits()))[0]
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "export"
        hf_folder.write(out, whole_tensors(model, arch), hf_folder.companions(folder))
        back = hf_folder.read(out)
        same = read_architecture(out) == arch
    if not same:
        return logits, "config.json"
    for name in tensorfiles.expected(arch):
        if name not in back or not torch.equal(back[name], tensors[name].to(DTYPES[dtype])):
            return logits, name
    return logits, ""


def _reference(
    folder: Path, dtype: torch.dtype, ids: list[list[int]], answered: list[int]
) -> tuple[list[Tensor], Tensor]:
    """Transformers' logits for each sequence, and for the prompt with its answer, in float32."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True, trust_remote_code=False)
    with torch.inference_mode():
        *logits, greedy = (model(torch.tensor([each])).logits[0].float() for each in (*ids, answered))
    return logits, greedy


def _apart(ours: list[Tensor], theirs: list[Tensor]) -> Tensor:
    return torch.cat([(a.float() - b[: len(a)]).flatten() for a, b in zip(ours, theirs, strict=True)])


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())
