"""The step that transformers' Trainer makes of the same samples: padded batches, logits of every position, AdamW.

Invariant: its loss is the learner's cross-entropy of the same samples, so both have done the same work.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from policy.packing import PackedSample
from policy.settings import OptimConfig

if TYPE_CHECKING:
    import torch

OUTSIDE = -100  # the label of a position that no loss is of


class PaddedLoop:
    """A model of a folder, trained as `transformers.Trainer` does it."""

    def __init__(self, folder: Path, optim: OptimConfig, token_budget: int) -> None:
        import torch
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, optim.dtype))
        self._model.train()
        self._adam = torch.optim.AdamW(
            self._model.parameters(), lr=0.0, betas=optim.betas, eps=optim.eps, weight_decay=optim.weight_decay
        )
        self._clip, self._budget = optim.clip_grad, token_budget

    def step(self, samples: Sequence[PackedSample]) -> float:
        """One optimizer step on -sum(weight * log pi) at a rate of 0, so that the weights stay; the loss."""
        import torch

        total = 0.0
        for batch in padded(samples, self._budget):
            ids, labels, weights, mask = _tensors(batch)
            logits = self._model(input_ids=ids, attention_mask=mask).logits.float()
            each = torch.nn.functional.cross_entropy(
                logits[:, :-1].transpose(1, 2), labels[:, 1:], ignore_index=OUTSIDE, reduction="none"
            )
            loss = (each.sum(1) * weights).sum()
            loss.backward()
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._clip)
        self._adam.step()
        self._adam.zero_grad()
        return total


def padded(samples: Sequence[PackedSample], token_budget: int) -> list[list[PackedSample]]:
    """Batches in the samples' order, each as large as `token_budget` allows with what is filled up."""
    batches: list[list[PackedSample]] = []
    for sample in samples:
        longest = max(len(one.ids) for one in [*(batches[-1] if batches else []), sample])
        if batches and longest * (len(batches[-1]) + 1) <= token_budget:
            batches[-1].append(sample)
        else:
            batches.append([sample])
    return batches


def equal(samples: Sequence[PackedSample], vocab: int) -> list[PackedSample]:
    """As many samples, all of the median's length, that share no prompt."""
    ordered = sorted(samples, key=lambda sample: len(sample.ids))
    middle = ordered[len(ordered) // 2]
    return [
        PackedSample(
            ids=[1 + (number + 7 * place) % (vocab - 1) for place in range(len(middle.ids))],
            response_len=middle.response_len,
            weight=middle.weight,
        )
        for number in range(len(samples))
    ]


def _tensors(batch: Sequence[PackedSample]) -> tuple[torch.Tensor, ...]:
    import torch

    longest = max(len(sample.ids) for sample in batch)
    ids = torch.zeros(len(batch), longest, dtype=torch.long)
    labels, mask = torch.full_like(ids, OUTSIDE), torch.zeros_like(ids)
    for row, sample in enumerate(batch):
        length = len(sample.ids)
        ids[row, :length] = torch.tensor(sample.ids)
        mask[row, :length] = 1
        labels[row, length - sample.response_len : length] = ids[row, length - sample.response_len : length]
    return ids, labels, torch.tensor([sample.weight for sample in batch]), mask
