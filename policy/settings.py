"""Settings of a trainer, apart from the libraries that run it: adapters, the layout of ranks, Adam, the objective."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec

from policy.architecture import Architecture
from policy.tensorfiles import inside
from runtime.errors import ConfigError
from runtime.messaging.message import Value
from runtime.settings import Section, key, tuning

ADAPTER = "adapter"  # PEFT's folder, next to weights
ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


class LoraConfig(Section, frozen=True, kw_only=True):
    """The deploy file's `learner.lora` (Hu et al. 2021): W + alpha / rank * B A, where A and B alone are trained."""

    AT: ClassVar[str] = "learner.lora"

    rank: Annotated[
        int,
        tuning("Trains adapters of this rank (LoRA) and leaves the weights as they are. 0 trains all weights.", ge=0),
    ] = 0
    alpha: Annotated[float, tuning("Multiplies what an adapter adds by this over the rank.", gt=0)] = 32.0
    targets: Annotated[
        tuple[str, ...],
        tuning("Names the projections that get adapters, such as q_proj. None named is all of them."),
    ] = ()

    def adapted(self, arch: Architecture) -> dict[str, dict[str, tuple[int, int]]]:
        """Per layer: Megatron's linear layers by name, and of each the folder's tensors that get adapters.

        A tensor is [out, in]. Raises ConfigError for a target that no layer of `arch` has.
        """
        if not self.rank:
            return {}
        linear = {
            name: {hf: (size[0], size[1]) for hf, size in parameter.tensors.items() if len(size) == 2}
            for name, parameter in inside(arch).items()
        }
        known = {projection(hf): hf for tensors in linear.values() for hf in tensors}
        if unknown := [target for target in self.targets if target not in known]:
            raise ConfigError(f"learner.lora.targets: {unknown[0]!r} is not one of {', '.join(known)}")
        wanted = {known[target] for target in self.targets or known}
        chosen = {name: {hf: size for hf, size in of.items() if hf in wanted} for name, of in linear.items()}
        return {name: of for name, of in chosen.items() if of}

    def parameters(self, arch: Architecture) -> int:
        """Trained parameters of all layers."""
        of_layer = sum(out + into for of in self.adapted(arch).values() for out, into in of.values())
        return arch.layers * self.rank * of_layer

    def peft(self, arch: Architecture) -> dict[str, object]:
        return {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "r": self.rank,
            "lora_alpha": self.alpha,
            "lora_dropout": 0.0,
            "bias": "none",
            "fan_in_fan_out": False,
            "inference_mode": True,
            "target_modules": sorted(projection(hf) for of in self.adapted(arch).values() for hf in of),
        }


def projection(tensor: str) -> str:
    """The name by which PEFT targets a folder's weight: q_proj of self_attn.q_proj.weight."""
    return tensor.rsplit(".", 2)[-2]


class ParallelConfig(Section, frozen=True, kw_only=True):
    """The deploy file's `learner.parallel`. The ranks are tensor * pipeline * data processes."""

    AT: ClassVar[str] = "learner.parallel"

    tensor: Annotated[int, key("Splits each weight matrix over this many ranks.", ge=1)] = 1
    pipeline: Annotated[int, tuning("Splits the layers into this many stages, each on ranks of its own.", ge=1)] = 1
    sequence: Annotated[
        bool, tuning("Splits norms and residuals, too, over the tensor ranks (sequence parallelism).")
    ] = False
    data: Annotated[int, key("Shares each batch, and Adam's state, between this many copies of the model.", ge=1)] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sequence and self.tensor == 1:
            raise ConfigError("learner.parallel.sequence is true: it needs learner.parallel.tensor above 1")

    @property
    def ranks(self) -> int:
        return self.tensor * self.pipeline * self.data

    def vocab_rows(self, model: Architecture) -> int:
        """Rows of the vocabulary that each tensor rank holds; the last rank's may end in padding."""
        return -(-model.vocab // self.tensor)

    def refuse(self, model: Architecture) -> None:
        """Raise ConfigError of one line where `model` can't be split so."""
        split_by_tensor = {
            "num_attention_heads": model.heads,
            "num_key_value_heads": model.kv_heads,
            "intermediate_size": model.ffn,
        }
        for name, count in split_by_tensor.items():
            if count % self.tensor:
                raise ConfigError(f"learner.parallel.tensor is {self.tensor}: it does not divide {name} {count}")
        if (self.tensor - 1) * self.vocab_rows(model) >= model.vocab:
            raise ConfigError(f"learner.parallel.tensor is {self.tensor}: vocab_size {model.vocab} is too small for it")
        if model.layers % self.pipeline:
            name = "num_hidden_layers"
            raise ConfigError(f"learner.parallel.pipeline is {self.pipeline}: it does not divide {name} {model.layers}")


class Objective(Value, kw_only=True):
    """What one RL step minimizes, as it goes to the ranks. `learner.rl` has refused what has no meaning."""

    clip_ratio_low: float = 0.2
    clip_ratio_high: float = 0.2
    dual_clip: float = 3.0
    kl_coef: float = 0.0
    importance_ratio: Literal["direct", "decoupled"] = "direct"
    ratio: Literal["token", "sequence"] = "token"  # sequence: a sample's geometric mean
    mismatch: Literal["none", "tis", "token_mask", "sequence_mask"] = "tis"
    tis_cap: float = 2.0  # also the bound of a mask, which is its inverse on the other side
    entropy_coef: float = 0.0
    entropy: float = 0.0  # of the batch, nats per token: what the entropy bonus is centred on
    loss: str = ""  # package.module:function that is a token's loss in place of the clipped surrogate


class OptimConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Adam as Megatron runs it. The learning rate comes with every step."""

    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-8
    weight_decay: float = 0.01
    clip_grad: float = 1.0
    dtype: str = "float32"  # float32 on CPU; bfloat16 keeps fp32 main weights and gradients
    recompute: str = "none"  # what the backward pass computes again: "selective" is each MLP, "full" each layer
    attention: str = "sdpa"  # one call for each run of equal lengths and each response; "flex" is one call, on a GPU
    lora: LoraConfig = LoraConfig()
    vision: str = "frozen"  # what of a tower is trained: nothing, its "merger" alone, or "all" of it
    seed: int = 1234  # of what is drawn: adapters alone, for weights come from files
