"""Figures over micro-batches."""

import math

import torch

from policy.megatron.ranks import StepTally


def test_means_are_over_tokens_and_peaks_over_everything() -> None:
    tally = StepTally()
    for values in ([1.0, 2.0, 3.0], [10.0], []):
        tally.mean("mean", torch.tensor(values))
        tally.peak("peak", torch.tensor(values) - 20.0)
        tally.mean("nothing", torch.tensor([]))
        tally.total("total", 2.0)
    tally.mean("share", torch.tensor([True, False, False, True]))
    assert tally.figures() == {"mean": 4.0, "peak": -10.0, "total": 6.0, "share": 0.5}


def test_figures_are_finite() -> None:
    tally = StepTally()
    tally.total("total", math.inf)
    tally.mean("mean", torch.tensor([math.nan, 1.0]))
    tally.peak("peak", torch.tensor([math.inf]))
    assert tally.figures() == {"total": 0.0, "mean": 0.0, "peak": 0.0}


def test_seconds_add_up_even_of_what_fails() -> None:
    tally = StepTally()
    for _ in range(2):
        try:
            with tally.timed("work_s"):
                raise KeyError
        except KeyError:
            continue
    assert tally.figures()["work_s"] > 0
