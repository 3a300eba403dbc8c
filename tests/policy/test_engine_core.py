"""Whatever is batched, chunked, cached, retracted or swapped: tokens and log-probabilities are transformers'.

Draws invert the distribution function, and log-probabilities are those of the tempered distribution.
"""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from policy.engine.core import draw
from policy.engine.model import load_weights
from policy.errors import EngineError
from tests.policy.engine_tools import (
    VOCAB,
    make_core,
    reference_logits,
    reference_logprobs,
    response,
    run_core,
    write_model,
)

TOLERANCE = 1e-4


@pytest.fixture(scope="module", params=["qwen2", "qwen3", "llama3", "mistral", "glm4"])
def model(request, tmp_path_factory):
    return write_model(tmp_path_factory.mktemp(request.param) / "model", request.param, tied=request.param == "qwen2")


@pytest.fixture(scope="module")
def qwen2(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("qwen2") / "model")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("other") / "model", seed=9)


def prompt(length: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(VOCAB) for _ in range(length)]


def check(folder, one, temperature=0.0):
    plain = one.ids[: one.prompt_len]
    assert one.logprobs == pytest.approx(reference_logprobs(folder, plain, one.output, temperature), abs=TOLERANCE)


@pytest.mark.slow
def test_a_mixed_batch_equals_transformers(model):
    core = make_core(model, prefill_tokens=16, max_running_requests=4)
    many = [response(str(i), prompt(3 + 7 * i, i), 4 + i, temperature=0.7 * (i % 2)) for i in range(7)]
    run_core(core, *many)
    assert core.figures.max_pass_sequences >= 2
    for i, one in enumerate(many):
        assert len(one.output) == 4 + i
        check(model, one, 0.7 * (i % 2))


@pytest.mark.parametrize("style", ["llama3", "glm4"])
def test_bfloat16_is_as_near_to_float32_as_that_of_transformers(tmp_path, style):
    folder = write_model(tmp_path / "model", style)
    core, ids = make_core(folder, torch.bfloat16, prefill_tokens=9), prompt(40, 3)
    one = response("a", ids, 1, score_at=0)
    run_core(core, one)
    exact, theirs = (
        torch.log_softmax(reference_logits(folder, ids, dtype).float(), -1)[range(39), ids[1:]]
        for dtype in (torch.float32, torch.bfloat16)
    )
    ours = torch.tensor(one.prompt_logprobs)
    assert 0 < (ours - exact).square().mean().sqrt() < 1.5 * (theirs - exact).square().mean().sqrt()


def test_a_cached_prefix_changes_nothing(model):
    core = make_core(model)
    shared = prompt(40, 1)
    first = response("a", [*shared, 5, 6], 6)
    again = response("b", [*shared, 9, 8, 7], 6)
    run_core(core, first)
    run_core(core, again)
    assert first.cached == 0
    assert again.cached == 40
    check(model, again)


def test_prompt_scores(model):
    core = make_core(model, prefill_tokens=7)
    ids = prompt(30, 3)
    run_core(core, response("warm", ids, 1))
    one = response("a", ids, 0, score_at=12)
    run_core(core, one)
    expected = torch.log_softmax(reference_logits(model, ids), -1)[range(12, 29), ids[13:]].tolist()
    assert one.prompt_logprobs == pytest.approx(expected, abs=TOLERANCE)
    assert one.output == []
    assert one.cached == 8  # up to the first position whose logits are needed


def test_retraction_computes_anew_and_goes_on(model):
    core = make_core(model)
    one, two = response("a", prompt(9, 4), 12), response("b", prompt(20, 5), 12, score_at=3)
    core.submit([one, two])
    for _ in range(5):
        core.step()
    core.pause("retract")
    assert core.step() == []
    core.scheduler.paused = False
    run_core(core, response("c", prompt(4, 6), 2))
    while one.finish is None or two.finish is None:
        core.step()
    assert (one.retractions, two.retractions) == (1, 1)
    assert len(two.prompt_logprobs) == 16
    check(model, one)
    check(model, two)


def test_new_weights_between_two_tokens(qwen2, other):
    core = make_core(qwen2)
    run_core(core, response("e", prompt(19, 6), 3))
    follows, bound = response("f", prompt(9, 7), 10), response("b", prompt(9, 8), 10)
    core.submit([follows])
    core.submit([bound], "0.0")
    for _ in range(8):  # two lanes take turns
        core.step()
    core.install(load_weights(other, torch.device("cpu")), "0.1", str(other), retract=True)
    late = response("l", prompt(19, 6), 3)
    run_core(core, late)
    while follows.finish is None or bound.finish is None:
        core.step()
    cut = follows.spans[0].end
    assert [(span.version, span.start, span.end) for span in follows.spans] == [("0.0", 0, cut), ("0.1", cut, 10)]
    assert [span.version for span in bound.spans] == ["0.0"]
    assert [span.version for span in late.spans] == ["0.1"]
    assert late.cached == 0, "a prefix computed by old weights is not reused"
    plain = follows.ids[:9]
    old = reference_logprobs(qwen2, plain, follows.output, 0.0)
    new = reference_logprobs(other, plain, follows.output, 0.0)
    assert follows.logprobs == pytest.approx(old[:cut] + new[cut:], abs=TOLERANCE)
    check(qwen2, bound)
    check(other, late)


def test_pinned_weights_stay_until_their_last_request(qwen2, other):
    core = make_core(qwen2, max_pinned=1)
    core.pin("9.9", str(other), load_weights(other, torch.device("cpu")))
    with pytest.raises(EngineError, match="pinned already"):
        core.pin("9.8", str(other), load_weights(other, torch.device("cpu")))
    one = response("a", prompt(9, 7), 6)
    core.submit([one], "9.9")
    core.step()
    core.unpin("9.9")
    with pytest.raises(EngineError, match="not resident"):
        core.submit([response("b", [1], 1)], "9.9")
    while one.finish is None:
        core.step()
    check(other, one)
    assert not core._bound


def test_numbers_that_are_not_finite_end_one_request_only(model):
    core = make_core(model)
    ids = prompt(9, 1)
    run_core(core, response("a", ids, 2))
    core.cache.rows_kv[:, 0, :9] = float("nan")
    core.cache.pool[:] = float("nan")  # what the index offers is poisoned
    sick = response("b", ids, 3)
    run_core(core, sick)
    assert sick.finish is not None
    assert (sick.finish.kind, sick.finish.status) == ("abort", 500)
    well = response("c", ids, 3)
    run_core(core, well)
    check(model, well)


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
