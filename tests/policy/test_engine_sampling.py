"""Draws invert the distribution function, and log-probabilities are those of the tempered distribution."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from policy.engine.core import draw

LOGITS = st.lists(st.floats(-20, 20, width=32), min_size=2, max_size=9)


@given(logits=LOGITS, temperature=st.floats(0.05, 4.0), uniform=st.floats(0, 1, exclude_max=True))
def test_a_draw_inverts_the_distribution_function(logits, temperature, uniform):
    (token,), (logprob,) = draw(torch.tensor([logits]), [temperature], [uniform], [1.0])
    expected = torch.log_softmax(torch.tensor(logits) / temperature, -1)
    assert logprob == pytest.approx(float(expected[token]), abs=1e-5)
    mass = expected.double().exp().cumsum(-1)
    assert mass[token] >= uniform - 1e-5
    assert token == 0 or mass[token - 1] <= uniform + 1e-5
    assert math.exp(logprob) > 0


@given(logits=LOGITS)
def test_temperature_zero_is_greedy_with_plain_logprobs(logits):
    (token, other), (logprob, _) = draw(torch.tensor([logits, logits]), [0.0, 1.0], [0.5, 0.5], [0.9, 1.0])
    assert logits[token] == max(logits)
    assert logprob == pytest.approx(float(torch.log_softmax(torch.tensor(logits), -1)[token]), abs=1e-6)
    assert 0 <= other < len(logits)


def test_tokens_without_mass_are_never_drawn():
    logits = torch.tensor([[0.0, -math.inf, 0.0, -math.inf]])
    for uniform in (0.0, 0.4999999, 0.5, 0.999999999999):
        (token,), (logprob,) = draw(logits, [1.0], [uniform], [0.999])
        assert token in (0, 2)
        assert math.isfinite(logprob)


@given(logits=LOGITS, share=st.floats(0.01, 1.0), uniform=st.floats(0, 1, exclude_max=True))
@pytest.mark.slow
def test_a_share_of_the_likeliest_tokens_is_drawn_from(logits, share, uniform):
    (token,), (logprob,) = draw(torch.tensor([logits]), [1.0], [uniform], [share])
    likely = torch.softmax(torch.tensor(logits), -1)
    assert logprob == pytest.approx(float(likely[token].log()), abs=1e-5), "what is left out changes no log-probability"
    likelier = likely[likely > likely[token] * (1 + 1e-5)]  # a smaller difference may be a tie in another precision
    assert float(likelier.double().sum()) < share + 1e-5
