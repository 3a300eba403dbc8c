"""Scores of targets, a chunk of rows at a time, are what the whole softmax says, and so are their gradients."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from policy.megatron import objective
from policy.megatron.objective import VocabRows
from policy.megatron.ranks import ensure_parallel
from policy.settings import ParallelConfig

ROWS, HIDDEN, VOCAB = 23, 16, 60


class Largest(TorchDispatchMode):
    """The most elements that a new tensor has."""

    found = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        for one in out if isinstance(out, (tuple, list)) else [out]:
            self.found = max(self.found, one.numel() if isinstance(one, torch.Tensor) else 0)
        return out


def drawn(seed: int) -> tuple[VocabRows, torch.Tensor, torch.Tensor]:
    """Rows, targets and temperatures."""
    ensure_parallel(1, ParallelConfig())
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(ROWS, HIDDEN, generator=generator, requires_grad=True)
    weight = (0.3 * torch.randn(VOCAB, HIDDEN, generator=generator)).requires_grad_()
    targets = torch.randint(VOCAB, (ROWS,), generator=generator)
    return VocabRows(hidden, weight, VOCAB), targets, 0.5 + torch.rand(ROWS, generator=generator)


def loss(unit: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """Something whose slope differs from row to row, as that of a ratio does."""
    return (unit.exp() * torch.arange(ROWS)).sum() + (at * at).sum()


@pytest.mark.parametrize("rows", [1, 5, ROWS])
@pytest.mark.parametrize("heated", [True, False])
def test_scores_and_gradients_are_those_of_the_whole_softmax(
    monkeypatch: pytest.MonkeyPatch, rows: int, *, heated: bool
) -> None:
    monkeypatch.setitem(objective.CHUNK, "cpu", rows * VOCAB)
    found, targets, temperatures = drawn(rows)
    scores = found.scores(targets, temperatures if heated else None, entropy=True)
    loss(scores.unit, scores.drawn).backward()
    ours = [found.hidden.grad, found.weight.grad]
    found.hidden.grad = found.weight.grad = None

    logits = found.logits()
    at = (logits / temperatures[:, None] if heated else logits).log_softmax(-1)
    plain = logits.log_softmax(-1)
    picked = [one.gather(1, targets[:, None])[:, 0] for one in (plain, at)]
    loss(*picked).backward()
    torch.testing.assert_close([scores.unit, scores.drawn], picked)
    torch.testing.assert_close(scores.entropy, -(plain.exp() * plain).sum(-1).detach())
    assert scores.predicted.tolist() == (logits.argmax(-1) == targets).tolist()
    torch.testing.assert_close(ours, [found.hidden.grad, found.weight.grad], rtol=2e-5, atol=2e-5)


def test_no_more_rows_than_a_chunk_s_have_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(objective.CHUNK, "cpu", 8 * VOCAB)
    found, targets, temperatures = drawn(0)
    with Largest() as most:
        scores = found.scores(targets, temperatures, entropy=True)
        loss(scores.unit, scores.drawn).backward()
    assert most.found <= max(8 * VOCAB, VOCAB * HIDDEN) < ROWS * VOCAB


def test_a_weight_that_is_frozen_gets_no_gradient() -> None:
    found, targets, _ = drawn(0)
    frozen = VocabRows(found.hidden, found.weight.detach(), VOCAB)
    frozen.scores(targets).unit.sum().backward()
    assert found.hidden.grad is not None
    assert frozen.weight.grad is None
    assert frozen.scores(targets).entropy.numel() == 0
