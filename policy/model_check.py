"""Compares a model folder as learner and engine compute it with transformers, for `computerrl model check`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from policy import hf_folder, tensorfiles
from policy.architecture import Architecture, ModelVerdict, read_architecture
from policy.chat_process import MOST_TURNS
from policy.engine.cache import KeyValueCache
from policy.engine.core import EngineCore, EngineOptions, chunk_of
from policy.engine.model import Decoder, load_weights
from policy.engine.scheduler import Draw, Sequence, SequenceWork
from policy.hf_folder import DTYPES
from policy.megatron.model import MicroBatchRunner, PolicyModel, whole_tensors
from policy.megatron.ranks import ensure_parallel
from policy.packing import MicroBatch, PackedSample, SeenPicture
from policy.pictures import PicturePlace, PictureStyle, patches, picture_ids, placed, style_of
from policy.tensorfiles import SEEING
from policy.tokenizer import Tokenizer
from policy.vision.eyes import eyes_of
from runtime.errors import ComputerRLError

EXACT, RELATIVE = 1e-4, 1e-5  # float32: a logit may differ by so much, or by so much of the largest logit
ROUNDED = 1.5  # else: our rms distance from the next finer type in that of transformers
GREEDY_TOKENS = 16
QUESTION = "What is the capital of France?"
_CPU = torch.device("cpu")
_LENGTHS = (3, 33, 64)  # of the compared sequences, in tokens
_SIZES = ([(117, 83)], [(61, 140), (224, 170)])  # of the pictures in sequences of a model that sees


class _Case(NamedTuple):
    """A sequence that all compute."""

    ids: list[int]
    pictures: list[PicturePlace]


def _cases(arch: Architecture, style: PictureStyle | None) -> list[_Case]:
    """Text, and of a model that sees text with one and with two pictures."""
    generator = torch.Generator().manual_seed(0)
    special = set() if style is None else {style.start_id, style.pad_id, style.end_id}

    def text(length: int) -> list[int]:
        drawn: list[int] = torch.randint(arch.vocab, (length,), generator=generator).tolist()
        return [0 if token in special else token for token in drawn]

    cases = [_Case(text(min(length, arch.context, max(_LENGTHS))), []) for length in _LENGTHS]
    if style is None:
        return cases
    for sizes in _SIZES:
        case = _Case(text(3), [])
        for size in sizes:
            png = _noise(size, generator)
            case.pictures.append(placed(len(case.ids) + 1, sha256(png).hexdigest(), png, style))
            case.ids.extend([*picture_ids(*size, style), *text(5)])
        if len(case.ids) <= arch.context:
            cases.append(case)
    return cases


def _noise(size: tuple[int, int], generator: torch.Generator) -> bytes:
    from PIL import Image

    png, (width, height) = BytesIO(), size
    shades = torch.randint(256, (height, width, 3), generator=generator, dtype=torch.uint8)
    Image.fromarray(shades.numpy()).save(png, "PNG")
    return png.getvalue()


def compare(folder: Path, dtype: str, report: Callable[[str], None]) -> ModelVerdict:
    """Look at `folder`, computing in `dtype`. Raises ConfigError for what is not covered."""
    arch = read_architecture(folder)
    verdict = ModelVerdict(architecture=arch.style)
    style = style_of(folder)
    cases = _cases(arch, style)
    tokenizer = Tokenizer.load(folder)
    prompt = tokenizer.prompt_ids(QUESTION)
    verdict.chat = _refused(tokenizer)
    try:
        report("the engine loads, computes and draws")
        engine, drawn = _engine(folder, arch, dtype, cases, prompt)
        report("the learner loads, computes and exports")
        learner, changed = _learner(folder, arch, dtype, cases, style)
    except ComputerRLError as error:
        verdict.why = str(error)
        return verdict
    verdict.loads = True
    report("transformers computes")
    answered = _Case([*prompt, *drawn], [])
    *exact, greedy = _reference(folder, torch.float32, [*cases, answered], style)
    rounded = None if dtype == "float32" else _reference(folder, DTYPES[dtype], cases, style)
    ours = {"engine": engine, "learner": learner}
    reasons = _differences(verdict, ours, exact, rounded)
    if reasons and rounded is None:  # what float32 rounds grows with a model: transformers rounds, too
        report("transformers computes in float64")
        rounded = exact
        reasons = _differences(verdict, ours, _reference(folder, torch.float64, cases, style), rounded)
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
    folder: Path, arch: Architecture, dtype: str, cases: list[_Case], prompt: list[int]
) -> tuple[list[Tensor], list[int]]:
    """Its logits at every position of each sequence, and its greedy answer to `prompt`."""
    weights = load_weights(folder, _CPU, DTYPES[dtype])
    longest = max(len(case.ids) for case in cases)
    length = min(arch.context, max(len(prompt) + GREEDY_TOKENS, longest))
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
        arch, rows=len(cases), length=length, blocks=1, block=8, device=_CPU, dtype=weights.embedding.dtype
    )
    works = []
    for row, (ids, pictures) in enumerate(cases):
        sequence = Sequence(rid="check", ids=list(ids), draw=draw, row=row, pictures=tuple(pictures))
        works.append(SequenceWork(sequence, 0, len(ids), len(ids)))
    logits = Decoder(arch, cache, _CPU).forward(weights, [chunk_of(work, weights.eyes) for work in works])
    return list(logits.split([work.end for work in works])), answer.output


def _learner(
    folder: Path, arch: Architecture, dtype: str, cases: list[_Case], style: PictureStyle | None
) -> tuple[list[Tensor], str]:
    """Its logits at all but the last position of each sequence, and the first tensor that an export changes, or ""."""
    ensure_parallel(0)
    tensors = hf_folder.read(folder)
    model = PolicyModel(arch, dtype)
    model.load_hf(tensors, arch)
    samples = []
    for ids, places in cases:
        pictures = tuple(SeenPicture(at=place.at, digest=place.digest, png=place.png) for place in places)
        samples.append(PackedSample(ids=ids, response_len=len(ids) - 1, weight=1.0, pictures=pictures))
    runner = MicroBatchRunner(model, _CPU, 1, style, eyes_of(style, arch, tensors, DTYPES[dtype], _CPU))
    logits = runner.read([MicroBatch(samples=samples)], lambda inputs, rows: inputs.by_sample(rows.logits()))[0]
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "export"
        hf_folder.write(out, whole_tensors(model, arch), hf_folder.companions(folder))
        back = hf_folder.read(out)
        same = read_architecture(out) == arch
    if not same:
        return logits, "config.json"
    for name in tensorfiles.expected(arch):
        wanted = tensors[name] if name.startswith(SEEING) else tensors[name].to(DTYPES[dtype])
        if name not in back or not torch.equal(back[name], wanted):
            return logits, name
    return logits, ""


def _reference(folder: Path, dtype: torch.dtype, cases: list[_Case], style: PictureStyle | None) -> list[Tensor]:
    """Transformers' logits for each sequence, computed in `dtype`."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    auto = AutoModelForCausalLM if style is None else AutoModelForImageTextToText
    model = auto.from_pretrained(folder, dtype=dtype, local_files_only=True, trust_remote_code=False)
    with torch.inference_mode():
        return [model(**_inputs(case, style)).logits[0].float() for case in cases]


def _inputs(case: _Case, style: PictureStyle | None) -> dict[str, Any]:
    ids = torch.tensor([case.ids])
    if style is None or not case.pictures:
        return {"input_ids": ids}
    rows, grids = zip(*(patches(picture.png, style) for picture in case.pictures), strict=True)
    return {
        "input_ids": ids,
        "pixel_values": torch.cat([torch.from_numpy(each) for each in rows]),
        "image_grid_thw": torch.tensor(grids),
        "mm_token_type_ids": (ids == style.pad_id).long(),
    }


def _apart(ours: list[Tensor], theirs: list[Tensor]) -> Tensor:
    return torch.cat([(a.float() - b[: len(a)]).flatten() for a, b in zip(ours, theirs, strict=True)])


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())
