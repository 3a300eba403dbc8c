"""OpenAI's route of the embedded engine: the model's template, its end of a turn, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.desktop.endpoints.completion import Completed, completed
from policy.engine.said import AnswerText
from policy.tokenizer import Tokenizer
from tests.policy import tiny_models
from tests.policy.chat_models import write_tokenizer
from tests.policy.engine_tools import Server, engine_server

pytestmark = pytest.mark.engine

SYSTEM = {"role": "system", "content": "be kind"}
ASKED = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "go"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("chat") / "model"
    tiny_models.write(folder, "llama3", seed=3)
    write_tokenizer(folder, "llama3")
    with engine_server(folder) as found:
        yield found


async def test_a_conversation_is_answered_as_its_ids_are(server: Server) -> None:
    tokenizer = Tokenizer.load(server.model)
    prompt = tokenizer.prompt_ids("go", "be kind", [("hi", "yes")])
    params = {"temperature": 0.0, "max_new_tokens": 9, "stop_token_ids": list(tokenizer.stop_ids)}
    plain = await server.generate(input_ids=prompt, sampling_params=params)
    body = {"model": "any", "messages": [SYSTEM, *ASKED], "temperature": 0, "max_tokens": 9}
    status, answer = await server.post("/v1/chat/completions", body)
    assert status == 200, answer
    choice = answer["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": plain["text"]}
    assert choice["finish_reason"] == plain["meta_info"]["finish_reason"]["type"]
    assert answer["usage"]["prompt_tokens"] == len(prompt)
    parts = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    assert (await server.post("/v1/chat/completions", {"messages": parts, "max_tokens": 1}))[0] == 200


@pytest.mark.parametrize(
    ("said", "change"),
    [
        ("top_p", {"top_p": 0}),
        ("stop", {"stop": [""]}),
        ("tools", {"tools": [{"type": "function"}]}),
        ("take turns", {"messages": [ASKED[0], ASKED[0]], "stream": True}),
        ("the last one is the user's", {"messages": ASKED[:2]}),
        ("take turns", {"messages": [ASKED[0], ASKED[0]]}),
        ("messages", {"messages": "hi"}),
        ("longer than the model's context", {"messages": [{"role": "user", "content": "x" * 600}]}),
    ],
)
async def test_what_is_not_carried_out_is_refused_by_name(server: Server, said: str, change: dict[str, object]) -> None:
    status, answer = await server.post("/v1/chat/completions", {"messages": ASKED} | change)
    assert status == 400
    assert said in str(answer)


async def test_a_stream_is_the_same_answer_piece_by_piece(server: Server) -> None:
    asked = {"messages": ASKED, "temperature": 0, "max_tokens": 12}
    _, whole = await server.post("/v1/chat/completions", asked)
    usage = {"stream": True, "stream_options": {"include_usage": True}}
    _, events = await server.post("/v1/chat/completions", asked | usage)
    text = whole["choices"][0]["message"]["content"]
    assert completed(events.encode(), 12) == Completed(text, "it was cut at 12 tokens")
    *_, counted, done = [line[len("data: ") :] for line in events.splitlines() if line]
    assert (json.loads(counted)["usage"], done) == (whole["usage"], "[DONE]")


async def test_an_answer_ends_before_a_text_to_stop_at(server: Server) -> None:
    asked = {"messages": ASKED, "temperature": 0, "max_tokens": 12}
    _, whole = await server.post("/v1/chat/completions", asked)
    text = whole["choices"][0]["message"]["content"]
    stop = text[len(text) // 2 :][:2]
    _, ended = await server.post("/v1/chat/completions", asked | {"stop": ["never said", stop]})
    assert ended["choices"][0]["message"]["content"] == text[: text.index(stop)]
    assert ended["choices"][0]["finish_reason"] == "stop"
    assert ended["usage"]["completion_tokens"] <= whole["usage"]["completion_tokens"]


async def test_a_small_share_draws_the_likeliest_token_alone(server: Server) -> None:
    asked = {"messages": ASKED, "max_tokens": 9}
    _, greedy = await server.post("/v1/chat/completions", asked | {"temperature": 0})
    _, drawn = await server.post("/v1/chat/completions", asked | {"temperature": 1, "top_p": 1e-6, "seed": 5})
    assert drawn["choices"][0]["message"] == greedy["choices"][0]["message"]


STOPS = st.lists(st.text("ab\ufffd", min_size=1, max_size=3), max_size=3)


@given(st.lists(st.integers(1, 5), max_size=12), STOPS, st.text("ab\ufffd"))
@example(cuts=[], stops=["\ufffd", "a\ufffda"], text="a\ufffda")
def test_what_was_given_out_is_never_taken_back(cuts: list[int], stops: list[str], text: str) -> None:
    said, given, at = AnswerText(stops), "", 0
    for step in [*cuts, len(text) + 1]:
        at = min(at + step, len(text))
        given += said.grown(text[:at], ended=at == len(text))
        if said.stopped or at == len(text):
            break
    ends = [(place + len(stop), place) for stop in stops if (place := text.find(stop)) >= 0]
    assert given == text[: min(ends, default=(0, len(text)))[1]]  # at the stop that is whole first
