"""The bundled model on an episode's successive prompts: the second step finds the first one's prefix."""

from __future__ import annotations

import pytest

from apis.observation import Element, Observation, Window
from apis.prompts.compact import render_compact
from apis.prompts.text import Turn
from apis.tasks.registry import task
from policy.base import MODEL
from policy.tokenizer import Tokenizer
from tests.policy.engine_tools import engine_server


def looked(text: str) -> Observation:
    window = Window(number=7, wm_class="Mousepad", title="plum.txt - Mousepad", active=True)
    field = Element(tag="text", name="", text=text, x=1, y=47, w=1278, h=670, states=("sen", "edt"), window=0)
    return Observation(windows=(window,), elements=(field,))


@pytest.mark.slow
async def test_an_episodes_second_step_reuses_its_prefix() -> None:
    tokenizer, instruction = Tokenizer.load(MODEL), task("text_editor/train/7").instruction
    turn = Turn(answer="select all", line="Agent.hotkey(keys=['ctrl', 'a'])", result="Hotkey Success")
    prompts = [
        render_compact(instruction, [], looked("old"), None),
        render_compact(instruction, [turn], looked("old"), turn.result),
        render_compact(instruction, [turn, turn], looked("new"), turn.result),
    ]
    with engine_server(MODEL) as engine:
        cached = []
        for prompt in prompts:
            params = {"max_new_tokens": 4, "temperature": 1.0}
            answer = await engine.generate(input_ids=tokenizer.prompt_ids(prompt), sampling_params=params)
            cached.append(answer["meta_info"]["cached_tokens"])
        assert cached[0] == 0
        assert 0 < cached[1] < cached[2], cached
