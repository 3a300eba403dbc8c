"""OpenAI's route of the embedded engine: the model's template, its end of a turn, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from policy.tokenizer import Tokenizer
from tests.policy import tiny_models
from tests.policy.chat_models import write_tokenizer
from tests.policy.engine_tools import Server, engine_server

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
        ("stream", {"stream": True}),
        ("top_p", {"top_p": 0.5}),
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
