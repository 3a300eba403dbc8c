"""An engine's answer is taken only when its parts agree."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import EngineGone, SamplerError
from actors.replay.messages import Sampling
from actors.sampler.client import GenerateAnswer, Limits, generate_body, read_generated
from actors.sampler.config import SamplersConfig
from actors.sampler.messages import Weights
from actors.sampler.weights import recall, remember
from runtime.errors import ConfigError
from runtime.messaging.message import Version


def answer(ids=(4, 5, 6), logprobs=None, spans=(("0.1", 0, 2), ("0.2", 2, 3)), finish="stop") -> GenerateAnswer:
    pairs = logprobs if logprobs is not None else [(-0.5, token) for token in ids]
    meta = {
        "finish_reason": {"type": finish, "matched": 6},
        "weight_versions": [dict(zip(("version", "start", "end"), span, strict=True)) for span in spans],
        "cached_tokens": 2,
        "output_token_logprobs": [[logprob, token, None] for logprob, token in pairs],
        "something_new": 1,
    }
    return msgspec.convert({"text": "", "output_ids": list(ids), "meta_info": meta}, GenerateAnswer)


def test_a_sound_answer():
    found = read_generated(answer())
    assert found.output_ids == [4, 5, 6]
    assert [(str(span.version), span.start, span.end) for span in found.spans] == [("0.1", 0, 2), ("0.2", 2, 3)]
    assert (found.finish, found.cached_tokens, found.logprobs) == ("stop", 2, [-0.5] * 3)


def test_a_request_leaves_no_preference_to_the_server():
    body = generate_body("r", [1], Sampling(temperature=0.5, max_new_tokens=7), [3], pin=None, cache=None)
    neutral = {"top_p": 1.0, "top_k": -1, "min_p": 0.0}
    penalties = {"frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0}
    asked = {"temperature": 0.5, "max_new_tokens": 7, "stop_token_ids": [3]}
    assert body["sampling_params"] == neutral | penalties | asked


@pytest.mark.parametrize(
    "broken",
    [
        {"logprobs": [(-0.5, 4), (-0.5, 5)]},
        {"logprobs": [(-0.5, 4), (-0.5, 5), (-0.5, 7)]},
        {"logprobs": [(0.5, 4), (-0.5, 5), (-0.5, 6)]},
        {"spans": [("0.1", 0, 2)]},
        {"spans": [("0.1", 0, 2), ("0.2", 1, 3)]},
        {"spans": [("0.1", 0, 0), ("0.2", 0, 3)]},
        {"spans": [("default", 0, 3)]},
    ],
)
def test_contradictions_are_refused(broken):
    with pytest.raises(SamplerError) as caught:
        read_generated(answer(**broken))
    assert not isinstance(caught.value, EngineGone)


def test_an_aborted_request_may_be_asked_again():
    with pytest.raises(EngineGone):
        read_generated(answer(finish="abort"))


@given(
    ids=st.lists(st.integers(-3, 12), max_size=12),
    tokens=st.integers(-1, 12),
    temperature=st.sampled_from([0.0, 1.0, -1.0, float("inf"), float("nan")]),
)
def test_what_an_engine_could_not_take_is_refused(ids, tokens, temperature):
    sampling = Sampling(temperature=temperature, max_new_tokens=tokens)
    sound = bool(ids) and all(0 <= token < 10 for token in ids) and tokens > 0 and len(ids) + tokens <= 16
    sound = sound and temperature in (0.0, 1.0)
    assert (Limits(vocabulary=10, context=16).refusal(ids, sampling) is None) == sound


def test_the_newest_weights_are_remembered_while_they_lie_there(tmp_path):
    first = Weights(version=Version(lineage=0, step=0), location="base")
    newer = Weights(version=Version(lineage=0, step=3), location=str(tmp_path / "weights"), digest="d")
    path = tmp_path / "samplers" / "sampler-0.json"
    assert recall(path, first) == (first, {})
    remember(path, newer, {newer.version: newer.location})
    assert recall(path, first) == (first, {})
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "config.json").write_text("{}")
    assert recall(path, first) == (newer, {newer.version: newer.location})
    assert recall(path, msgspec.structs.replace(newer, version=Version(lineage=1, step=0)))[0].version.lineage == 1
    kept = msgspec.structs.replace(newer, location="not written", digest="", group_owner="learner")
    remember(path, kept)
    assert recall(path, first) == (kept, {}), "the group's owner writes it when asked to"
    path.write_text("torn")
    assert recall(path, first) == (first, {})


@pytest.mark.parametrize("wrong", [{"count": 0}, {"attach": ["127.0.0.1:1"]}, {"generate_timeout_s": 0.0}])
def test_settings_that_cannot_work_are_refused(wrong):
    with pytest.raises(ConfigError, match=f"samplers.{next(iter(wrong))}"):
        SamplersConfig(**wrong)
