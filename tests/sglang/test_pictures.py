"""Real SGLang and the embedded engine draw the same after pictures, and SGLang's prompt has as many tokens as ours."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from policy.pictures import collapsed, placed_in
from tests.policy.engine_tools import make_core, response, run_core
from tests.policy.test_vision_engine import pictures_of, prompt_of
from tests.policy.vision_model import style, tiny_vision_folder
from tests.sglang.conftest import sglang_server

pytestmark = pytest.mark.real_sglang
TOKENS = 12
PARTS = [[2, 100, 101], (140, 90), [1, 3]]


async def test_greedy_tokens_after_a_picture_are_those_of_sglang(tmp_path: Path) -> None:
    folder = tiny_vision_folder(tmp_path / "model")
    look = style(folder)
    ids, pngs = prompt_of(PARTS, look), pictures_of(PARTS)
    places = placed_in(ids, pngs, look)
    core = make_core(folder, max_running_requests=1, context_length=256)
    ours = response("a", ids, TOKENS, pictures=places)
    run_core(core, ours)
    with sglang_server(folder, tmp_path) as server:
        params = {"temperature": 0.0, "max_new_tokens": TOKENS, "ignore_eos": True}
        shown = [base64.b64encode(png).decode() for png in pngs]
        theirs = await server.generate(
            input_ids=collapsed(ids, places), image_data=shown, sampling_params=params, return_logprob=True
        )
    assert theirs["meta_info"]["prompt_tokens"] == len(ids)
    assert theirs["output_ids"] == ours.output
    found = [logprob for logprob, _, _ in theirs["meta_info"]["output_token_logprobs"]]
    assert found == pytest.approx(ours.logprobs, abs=1e-3)
