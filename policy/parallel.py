"""How the learner's ranks share a model and its batches. Pure.

Invariant: a split that the model does not allow is refused by its key before any rank starts.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from policy.architecture import Architecture
from runtime.errors import ConfigError
from runtime.settings import Section, key, tuning


class ParallelConfig(Section, frozen=True, kw_only=True):
    """The deploy file's `learner.parallel`. The ranks are tensor * pipeline * context * data processes."""

    AT: ClassVar[str] = "learner.parallel"

    tensor: Annotated[int, key("Splits each weight matrix over this many ranks.", ge=1)] = 1
    pipeline: Annotated[int, tuning("Splits the layers into this many stages, each on ranks of its own.", ge=1)] = 1
    context: Annotated[int, tuning("Splits a sequence over this many ranks. This version takes 1.", ge=1)] = 1
    sequence: Annotated[
        bool, tuning("Splits norms and residuals, too, over the tensor ranks (sequence parallelism).")
    ] = False
    data: Annotated[int, key("Shares each batch, and Adam's state, between this many copies of the model.", ge=1)] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.context > 1:
            raise ConfigError(
                f"learner.parallel.context is {self.context}: attention over packed sequences needs each whole on one"
                " rank, so it is 1; learner.parallel.sequence=true splits what tensor ranks hold of a sequence"
            )
        if self.sequence and self.tensor == 1:
            raise ConfigError("learner.parallel.sequence is true: it needs learner.parallel.tensor above 1")

    @property
    def ranks(self) -> int:
        """Processes that train together."""
        return self.tensor * self.pipeline * self.context * self.data

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
