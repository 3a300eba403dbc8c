"""Which projections of a model get low-rank adapters (LoRA). No torch here.

Invariant: targets are the names that the model's own folder uses. An adapter is what PEFT means by the same settings.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from policy.architecture import Architecture
from policy.tensornames import inside
from runtime.errors import ConfigError
from runtime.settings import Section, tuning


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
            name: {hf: (size[0], size[1]) for hf, size in held.tensors.items() if len(size) == 2}
            for name, held in inside(arch).items()
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
        """PEFT's adapter_config.json."""
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
