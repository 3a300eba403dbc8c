"""Real SGLang and the embedded engine draw the same greedy tokens from one folder, with the same log-probabilities.

SmolLM2 is compared where `make smollm` has put it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from policy.tokenizer import Tokenizer
from tests.policy import tiny_models
from tests.policy.chat_models import write_tokenizer
from tests.policy.engine_tools import ROOT, make_core, response, run_core
from tests.proofs import proofs
from tests.sglang.conftest import sglang_server

pytestmark = pytest.mark.real_sglang
SMOLLM = ROOT / "models" / "smollm2"
TOKENS = 12


@pytest.fixture(scope="module", params=["llama3", "qwen3", "smollm2", *proofs("mistral", "qwen2", "glm4")])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A model folder with a chat template."""
    if request.param == "smollm2":
        if not (SMOLLM / "config.json").is_file():
            pytest.skip("make smollm fetches it")
        yield SMOLLM
        return
    made = tiny_models.write(tmp_path_factory.mktemp(request.param) / "model", request.param, tied=False)
    write_tokenizer(made, request.param)
    yield made


async def test_greedy_tokens_and_logprobs_are_those_of_sglang(folder: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(folder)
    prompt = tokenizer.prompt_ids("What is the capital of France?", "be brief", [("hi", "hello")])
    core = make_core(folder, max_running_requests=1, context_length=256)
    ours = response("a", prompt, TOKENS)
    run_core(core, ours)
    with sglang_server(folder, tmp_path) as server:
        params = {"temperature": 0.0, "max_new_tokens": TOKENS, "ignore_eos": True}
        theirs = await server.generate(input_ids=prompt, sampling_params=params, return_logprob=True)
        stops = params | {"ignore_eos": False, "max_new_tokens": 60, "stop_token_ids": list(tokenizer.stop_ids)}
        ended = await server.generate(input_ids=prompt, sampling_params=stops)
    assert theirs["output_ids"] == ours.output
    found = [logprob for logprob, _, _ in theirs["meta_info"]["output_token_logprobs"]]
    assert found == pytest.approx(ours.logprobs, abs=1e-3)
    if ended["meta_info"]["finish_reason"]["type"] == "stop":
        assert ended["output_ids"][-1] in tokenizer.stop_ids
