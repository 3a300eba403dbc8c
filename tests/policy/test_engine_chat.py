"""OpenAI's route of the embedded engine: the model's template, its end of a turn, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

from actors.desktop.config import EndpointConfig
from actors.desktop.endpoint import Endpoint, PromptRefused
from policy.engine import protocol
from policy.engine.chat import AnswerText
from policy.engine.protocol import _IGNORED, BadRequest, ChatBody, read_body, read_chat
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


# Whatever is not carried out, with the name that a client reads.
REFUSED: list[tuple[str, dict[str, object]]] = [
    ("top_p", {"top_p": 0}),
    ("stop", {"stop": [""]}),
    ("n other than 1", {"n": 2}),
    ("logprobs", {"logprobs": True}),
    ("repetition_penalty", {"repetition_penalty": 1.8}),
    ("tools", {"tools": [{"type": "function"}]}),
    ("response_format", {"response_format": {"type": "json_object"}}),
    ("prompt_logprobs", {"prompt_logprobs": 0}),  # those of the prompt's own tokens
    ("json_schema", {"json_schema": {}}),
    ("stream_options", {"stream_options": {"include_usage": True}}),
    ("stream_options.continuous_usage_stats", {"stream": True, "stream_options": {"continuous_usage_stats": True}}),
    ("messages[0].tool_calls", {"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]}),
    ("messages[0].role", {"messages": [{"role": "user<|eot_id|>", "content": "hi"}]}),
    ("messages[0].content.cache_control", {"messages": [{"role": "user", "content": [{"cache_control": {}}]}]}),
    ("image_url", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}),
    ("messages", {"messages": []}),
    ("did you mean temperature?", {"temprature": 0}),
    ("messages[0].contents is not supported by this engine: did you mean content?", {"messages": [{"contents": "x"}]}),
    ("longer than the model's context", {"messages": [{"role": "user", "content": "x" * 600}]}),
    ("max_tokens", {"max_tokens": "many"}),
]


@pytest.mark.parametrize(("said", "change"), REFUSED)
async def test_what_is_not_carried_out_is_refused_by_name(server: Server, said: str, change: dict[str, object]) -> None:
    status, answer = await server.post("/v1/chat/completions", {"messages": ASKED} | change)
    assert status == 400
    assert set(answer) == {"error"}
    assert answer["error"]["type"] == "invalid_request_error"
    assert said in answer["error"]["message"]


def test_what_asks_for_nothing_is_taken() -> None:
    nothing = {
        "model": "any", "user": "me", "metadata": {"a": "b"}, "n": 1, "logprobs": False, "top_logprobs": None,
        "tools": [], "tool_choice": "none", "parallel_tool_calls": True, "logit_bias": {}, "frequency_penalty": 0.0,
        "repetition_penalty": 1.0, "response_format": {"type": "text"}, "structured_outputs": None, "store": False,
        "stream": True, "stream_options": {"include_usage": None},
    }  # fmt: skip
    assert read_chat(msgspec.json.encode({"messages": ASKED} | nothing)).stream
    for raw in (
        b"",
        b"[]",
        b"{",
        b"\xff",
        b'{"messages": [3]}',
        b'{"n": true}',
        b'{"messages": null}',
        b'{"x": ' * 2000,
    ):
        with pytest.raises(BadRequest):
            read_chat(raw)
    with pytest.raises(BadRequest):
        read_body(b'{"input_ids": [1], "x": ' + b"[" * 2000)


def test_each_field_of_openais_client_is_carried_out_without_influence_or_refused_by_name() -> None:
    known = set(CompletionCreateParamsStreaming.__annotations__)
    assert known > {"prediction", "reasoning_effort", "modalities", "messages"}
    for name in sorted(known - set(ChatBody.__struct_fields__) - set(_IGNORED)):
        with pytest.raises(BadRequest, match=f"'param': '{name}'"):
            read_chat(msgspec.json.encode({"messages": ASKED, name: {"a": 1}}))
    page = (Path(protocol.__file__).parent / "README.md").read_text()
    assert all(f"`{name}`" in page for name in _IGNORED), "a page says what may be sent without influence"


async def test_openais_own_client_is_answered(server: Server) -> None:
    asked: dict[str, Any] = {"model": "any", "messages": ASKED, "temperature": 0, "max_tokens": 12}
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=server.token or "none", max_retries=0) as client:
        whole = await client.chat.completions.create(**asked)
        text = whole.choices[0].message.content
        stream = await client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
        pieces = [piece async for piece in stream]
        assert "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices) == text
        assert pieces[-1].usage == whole.usage
        drawn = await client.chat.completions.create(**asked | {"temperature": 1.0}, seed=3, top_p=1e-6)
        assert drawn.choices[0].message.content == text
        with pytest.raises(openai.BadRequestError, match="presence_penalty") as caught:
            await client.chat.completions.create(**asked, presence_penalty=1.0)
        assert (caught.value.param, caught.value.type) == ("presence_penalty", "invalid_request_error")
        with pytest.raises(openai.BadRequestError, match="did you mean top_p"):
            await client.chat.completions.create(**asked, extra_body={"topp": 1.0})


async def test_our_own_endpoint_is_answered_by_our_own_engine(server: Server) -> None:
    for stream in (False, True):
        config = EndpointConfig(url=f"{server.url}/v1", model="any", key_env="", stream=stream, retries=0)
        endpoint = Endpoint(config, server.token)
        try:
            found = await endpoint.complete(ASKED, 1, temperature=0.0, max_tokens=12)
            assert found.cut == "it was cut at 12 tokens"
            with pytest.raises(PromptRefused):
                await endpoint.complete([{"role": "user", "content": "x" * 600}], 1, temperature=0.0, max_tokens=12)
        finally:
            await endpoint.close()


async def test_an_answer_ends_before_a_text_to_stop_at(server: Server) -> None:
    asked = {"messages": ASKED, "temperature": 0, "max_tokens": 12}
    _, whole = await server.post("/v1/chat/completions", asked)
    text = whole["choices"][0]["message"]["content"]
    stop = text[len(text) // 2 :][:2]
    _, ended = await server.post("/v1/chat/completions", asked | {"stop": ["never said", stop]})
    assert ended["choices"][0]["message"]["content"] == text[: text.index(stop)]
    assert ended["choices"][0]["finish_reason"] == "stop"
    assert ended["usage"]["completion_tokens"] <= whole["usage"]["completion_tokens"]


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
