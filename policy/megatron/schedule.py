"""Micro-batches through the model: alone on each rank, or in turns through pipeline stages (Megatron's 1F1B).

Invariant: every stage sees the same micro-batches in the same order. A stage before the last hands on what it computed,
and only the last one sees the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from megatron.core import parallel_state
from megatron.core.pipeline_parallel.schedules import forward_backward_pipelining_without_interleaving
from torch import Tensor

from policy.megatron import shim
from policy.megatron.model import PackedInputs, PolicyModel
from policy.megatron.tally import StepTally
from policy.megatron.vocab import VocabRows
from policy.packing import MicroBatch

T = TypeVar("T")
Loss = Callable[[int, PackedInputs, VocabRows], Tensor]  # a micro-batch's number, inputs and rows -> its loss


class MicroBatchRunner:
    """Runs one model, or one wrapped by Megatron's DDP."""

    def __init__(self, model: torch.nn.Module, device: torch.device, multiple: int) -> None:
        """A packed sequence is filled up to a `multiple` of tokens."""
        self._model, self._device, self._multiple = model, device, multiple
        (self._rows,) = (part.rows for part in model.modules() if isinstance(part, PolicyModel))
        self._stages = parallel_state.get_pipeline_model_parallel_world_size()

    def train(
        self,
        batches: Sequence[MicroBatch],
        loss: Loss,
        tally: StepTally,
        forward_s: str = "forward_s",
        backward_s: str = "backward_s",
    ) -> None:
        """Add the gradient of the summed `loss` of `batches`; the seconds of both directions go to `tally`.

        With several stages the seconds of the backward direction include the waiting for other stages.
        """
        if not batches:
            return
        if self._stages > 1:
            with tally.timed(backward_s, less=forward_s):
                self._in_turns(batches, loss, lambda: tally.timed(forward_s))
            return
        for number, batch in enumerate(batches):
            with tally.timed(forward_s):
                inputs = self._inputs(batch)
                value = loss(number, inputs, self._rows(self._forward(inputs)))
            with tally.timed(backward_s):
                value.backward()

    @torch.no_grad()
    def read(self, batches: Sequence[MicroBatch], read: Callable[[PackedInputs, VocabRows], T]) -> list[T]:
        """What `read` makes of each micro-batch's inputs and rows, in order; nothing before the last stage."""
        if self._stages == 1 or not batches:
            return [read(inputs, self._rows(self._forward(inputs))) for inputs in map(self._inputs, batches)]
        found: list[T] = []

        def keep(_: int, inputs: PackedInputs, rows: VocabRows) -> Tensor:
            found.append(read(inputs, rows))
            return rows.hidden.new_zeros(())

        self._in_turns(batches, keep, nullcontext, forward_only=True)
        return found

    def _inputs(self, batch: MicroBatch) -> PackedInputs:
        return PackedInputs(batch, self._device, self._multiple)

    def _forward(self, inputs: PackedInputs) -> Tensor:
        output: Tensor = self._model(inputs.ids, inputs.positions, inputs.packed)
        return output

    def _in_turns(
        self,
        batches: Sequence[MicroBatch],
        loss: Loss,
        timed: Callable[[], AbstractContextManager[None]],
        *,
        forward_only: bool = False,
    ) -> None:
        def forward(numbered: Iterator[tuple[int, MicroBatch]], _: Any) -> tuple[Tensor, Any]:
            number, batch = next(numbered)
            with timed():
                inputs = self._inputs(batch)
                output = self._forward(inputs)

            def final(hidden: Tensor) -> tuple[Tensor, Tensor, None]:
                # Weights hold the denominators, so Megatron is to divide by nothing: it counts one token.
                with timed():
                    return loss(number, inputs, self._rows(hidden)), torch.ones((), dtype=torch.int), None

            return output, final

        with shim.cuda_literals():
            forward_backward_pipelining_without_interleaving(
                forward_step_func=forward,
                data_iterator=iter(enumerate(batches)),
                model=self._model,
                num_microbatches=len(batches),
                seq_length=1,  # not read: stages say how long each sequence is
                micro_batch_size=1,
                forward_only=forward_only,
            )
