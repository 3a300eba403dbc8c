"""What a rank of the learner holds on its device, reckoned from shapes before anything is loaded. No torch here.

Every tensor that grows with the model or the token budget is in exactly one part. Weights, gradients, Adam's state and
the reference are exact. Activations are those of one packed sequence as long as the token budget. The
reference lies in the host's memory, which a CPU has in common with it. So does Adam's state whole, of every data rank,
while a checkpoint is read or written.
"""

from __future__ import annotations

import math

import msgspec

from policy.architecture import Architecture
from policy.settings import OptimConfig, ParallelConfig
from policy.tensorfiles import ParameterTensors, expected, inside, outside, tower

GIB = 2**30
CHUNK = {"cpu": 1 << 24, "cuda": 1 << 29}  # logits at once: 64 MiB and 2 GiB of fp32
LOGITS_AT_ONCE = 3  # tensors of a chunk's size that the loss has at the same time
FP32, BF16 = 4, 2
SEEN = 256 << 20  # bytes of pictures' embeddings that are kept for the next time


class MemoryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes on the fullest device, by part."""

    weights: int
    gradients: int
    optimizer: int  # Adam's moments, and its fp32 weights where the model's are bfloat16
    reference: int  # on a CPU; what a GPU computes of it takes the place of the weights
    activations: int
    tower: int  # of a model that sees, with what it made of pictures and one pass of it
    vocabulary: int  # logits of a chunk of rows, and the gradient of the output layer
    export: int  # weights on their way to engines or to the host, while there are no activations
    checkpoint: int  # on a CPU: Adam's state as it is read or written, once more, while there are no activations
    pinned: int  # of the host's memory next to a GPU: the reference, rounded up to a power of two as torch may do
    staged: int  # of the host's memory next to a GPU: Adam's state, while a checkpoint is read or written

    @property
    def total(self) -> int:
        """The most at one time, but for what is in the host's memory next to a GPU."""
        lasting = self.weights + self.gradients + self.optimizer + self.reference + self.tower
        return lasting + max(self.activations + self.vocabulary, self.export, self.checkpoint)

    @property
    def host(self) -> int:
        """The most of the host's memory at one time, next to a GPU."""
        return self.pinned + self.staged

    def by_part(self) -> str:
        parts = msgspec.structs.asdict(self)
        host = _gib({"reference": parts.pop("pinned"), "checkpoint": parts.pop("staged")})
        return _gib(parts) + (f"; in the host's memory: {host}" if host else "")


# What an engine takes beyond its share, for activations, CUDA graphs and workspaces: SGLang's own reserve on a card of
# more than 60 GB, and a guess for smaller ones. Then what it keeps while it sleeps, of which nothing was measured.
WORKSPACE, SMALL_WORKSPACE, ASLEEP = 10 * GIB, 4 * GIB, 4 * GIB


def states(device: int, parts: dict[str, dict[str, int]]) -> str:
    """What a card of `device` bytes holds in each of several states."""
    return "; ".join(
        f"{name} {sum(of.values()) / GIB:.1f} of {device / GIB:.1f} GiB ({_gib(of)})" for name, of in parts.items()
    )


def _gib(parts: dict[str, int]) -> str:
    return ", ".join(f"{name} {size / GIB:.2f}" for name, size in parts.items() if size)


def plan(
    arch: Architecture,
    optim: OptimConfig,
    parallel: ParallelConfig,
    *,
    token_budget: int,
    reference: bool,
    device: str,
    broadcast: bool = False,
) -> MemoryPlan:
    """Of the fullest rank, on a `device` that is "cpu" or "cuda"; `reference` says whether there is a reference policy.

    Weights that are `broadcast` to engines are joined on a rank's device, others a tensor or a stage at a time. Raises
    ConfigError for adapters that `arch` can't have.
    """
    size = FP32 if optim.dtype == "float32" else BF16
    weights, adapters, head = parameters(arch, parallel), optim.lora.parameters(arch), parallel.vocab_rows(arch)
    trained = adapters or weights
    kept = size * trained if reference else 0
    mains = (FP32 if size == BF16 else 0) * trained
    state = 2 * FP32 * trained + mains
    again = state if parallel.data > 1 else mains  # a single data rank keeps moments where they were read
    rows = min(token_budget, max(1, CHUNK[device] // head))
    worked_on = 4 * (arch.ffn // parallel.tensor + arch.hidden)  # gradients within one layer
    sizes = [math.prod(shape) for shape in expected(arch).values()]
    joined = max(sizes) if parallel.pipeline == 1 else sum(sizes) // parallel.pipeline
    return MemoryPlan(
        weights=size * (weights + adapters),
        gradients=FP32 * trained,
        optimizer=state // parallel.data,
        reference=kept if device == "cpu" else 0,
        activations=size * token_budget * (activations(arch, optim, parallel) + worked_on),
        tower=seeing(arch, optim.vision, size, token_budget),
        vocabulary=FP32 * LOGITS_AT_ONCE * rows * head + (0 if adapters else size * head * arch.hidden),
        export=size * (sum(sizes) if broadcast else joined),
        checkpoint=again if device == "cpu" else 0,
        pinned=1 << (kept - 1).bit_length() if kept and device == "cuda" else 0,
        staged=state if device == "cuda" else 0,
    )


def seeing(arch: Architecture, trained: str, size: int, token_budget: int) -> int:
    """Bytes of a tower with numbers of `size` bytes, its last embeddings, and a pass over the largest picture.

    That one fills the token budget. A frozen tower keeps nothing for a backward pass; one that is `trained` keeps the
    layers of its part, and has gradients and Adam's state.
    """
    vision = arch.vision
    if vision is None:
        return 0
    pixels = 3 * vision.temporal_patch_size * vision.patch_size**2
    patch = 2 * FP32 * pixels + size * (10 * vision.hidden_size + 3 * vision.intermediate_size)
    patches = min(token_budget, arch.context) * vision.spatial_merge_size**2
    whole = {name: math.prod(shape) for name, shape in tower(vision).items()}
    if trained == "frozen":
        return size * sum(whole.values()) + SEEN + patches * patch
    part = sum(count for name, count in whole.items() if trained == "all" or name.startswith("merger."))
    state = (3 * FP32 + (FP32 if size == BF16 else 0)) * part
    return size * sum(whole.values()) + state + patches * patch * (vision.depth + 1 if trained == "all" else 2)


def parameters(arch: Architecture, parallel: ParallelConfig) -> int:
    """Of a tensor rank in the fullest pipeline stage."""

    def of(part: ParameterTensors) -> int:
        count = sum(math.prod(size) for size in part.tensors.values())
        return count if part.split is None else count // parallel.tensor

    layers = arch.layers // parallel.pipeline * sum(map(of, inside(arch).values()))
    norm = sum(of(part) for part in outside(arch).values() if part.split is None)
    embedding = parallel.vocab_rows(arch) * arch.hidden  # and as much in the output layer
    if parallel.pipeline == 1:
        return layers + norm + (1 if arch.tied else 2) * embedding
    return layers + norm + embedding  # the last stage, which has its own copy of a tied embedding


def activations(arch: Architecture, optim: OptimConfig, parallel: ParallelConfig) -> int:
    """Numbers of `optim.dtype` per token that a backward pass reads, before the output layer.

    A stage keeps as many micro-batches as there are stages. Of what is computed again one layer exists at a time.
    """
    tensor, traits = parallel.tensor, arch.traits
    hidden = arch.hidden // (tensor if parallel.sequence else 1)
    queries, keys, ffn = (n // tensor for n in (arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim, arch.ffn))
    norm = 3 if optim.dtype == "float32" else 5  # its input, normalised and scaled; bfloat16 is normalised in fp32
    norms = 2 * norm + (2 * (norm - 1) if traits.post_norms else 0)
    attention = 4 * queries + 3 * keys + (2 * queries + keys if traits.qk_norm else 0) + 4 * arch.rotary_dim
    mlp = 5 * ffn
    layer = norms * hidden + attention + mlp
    layers = arch.layers // parallel.pipeline
    kept = {"none": layers * layer, "selective": layers * (layer - mlp) + mlp, "full": layers * hidden + layer}
    return parallel.pipeline * kept[optim.recompute] + norm * hidden
