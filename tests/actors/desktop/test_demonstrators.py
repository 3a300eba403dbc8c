"""The pool of demonstrators: who answers, and labels by the oracle."""

from __future__ import annotations

from typing import Any

import pytest

from actors.cluster.config import lanes, models
from actors.cluster.config.schema import DemonstrationsConfig, Deploy
from actors.cluster.config.typed_yaml import build
from actors.desktop.answers import Answer, Prompt
from actors.desktop.config import OracleMember, hasty, who
from actors.desktop.demonstrators import DemonstratorPool, Labelled, fitting, of_oracle
from actors.errors import DesktopFault
from actors.replay.messages import Lane, Phase, PhaseRef, Reservation, Sampling
from apis.observation import Observation, from_guest
from apis.prompts.text import Turn
from policy.tokenizer import Tokenizer
from runtime.errors import ConfigError

DRAFT = "```python\nAgent.exit(success=False)\n```"
TASK = "text_editor/train/1"
FRAME = {
    "windows": [
        {"id": 7, "class": "Pcmanfm", "title": "Documents", "active": False},
        {"id": 8, "class": "Pcmanfm", "title": "Rename", "active": True},
    ],
    "elements": [
        ["push-button", "OK", "", 10, 20, 100, 30, ["sen"], 1],
        ["text", "", "plum.txt", 10, 60, 100, 30, ["foc", "sen", "edt"], 1],
    ],
    "cut": False,
}


def seen() -> Observation:
    return from_guest(FRAME)


def work(member: str, seed: int = 1, task: str = TASK) -> Reservation:
    return Reservation(
        token=1, lane=Lane.DEMO, task=task, group="", slot=0, seed=seed, max_turns=9, pin=None, member=member,
        sampling=Sampling(temperature=1.0, max_new_tokens=0), phase=PhaseRef(phase=Phase.DEMO, index=0),
    )  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(models.bundled())


def test_everybody_gets_steps_and_haste_is_a_share() -> None:
    assert {who(["a", "b", "c"], 3, step) for step in range(40)} == {"a", "b", "c"}
    assert 250 < sum(hasty(0.3, seed, 2) for seed in range(1000)) < 350
    assert not any(hasty(0.0, seed, 2) for seed in range(100))


async def test_a_mixed_attempt_says_who_made_which_step(tokenizer: Tokenizer) -> None:
    pool = DemonstratorPool([OracleMember(name="sound"), OracleMember(name="hasty", haste=0.99)], "compact")
    answers = pool.answers(work("mixed"), tokenizer)
    said = {}
    for step in range(12):
        history = [Turn(answer="x", line="Agent.wait()", result="ok")] * step
        answer = await answers.answer(step, Prompt(user="p"), seen(), history, None)
        said[answer.by] = answer.text
        assert (answer.logprobs, answer.spans) == ([], [])
    assert set(said) == {"sound", "hasty"}
    assert said["hasty"] == "that is done\nAgent.exit(success=True)"
    alone = pool.answers(work("sound"), tokenizer)
    assert (await alone.answer(0, Prompt(user="p"), seen(), [], None)).by == "sound"
    with pytest.raises(DesktopFault, match="no member nobody"):
        pool.answers(work("nobody"), tokenizer)


async def test_a_policy_s_answers_are_labelled_by_the_oracle_of_their_task(tokenizer: Tokenizer) -> None:
    class Policy:
        async def answer(self, step: int, prompt: Prompt, *_: Any) -> Answer:
            return Answer(text="hm", prompt_ids=[5], response_ids=[7], logprobs=[-1.0], spans=[], seconds=0.0)

    asked = work("", task="file_manager/train/1")
    oracle = of_oracle(asked, tokenizer, "compact", 0.0)
    found = await Labelled(Policy(), oracle).answer(0, Prompt(user="?"), seen(), [], None)
    assert (found.text, found.response_ids, found.logprobs) == ("hm", [7], [-1.0]), "the policy acts"
    shown = await of_oracle(asked, tokenizer, "compact", 0.0).answer(0, Prompt(user="?"), seen(), [], None)
    assert found.label_ids == shown.response_ids


def test_a_pool_is_declared_in_the_deploy_file() -> None:
    data = {
        "demos": {
            "attempts_per_task": 2,
            "demonstrators": [
                {"type": "oracle", "name": "api", "route": "api"},
                {"name": "any"},
            ],
        },
    }
    deploy = build(data, Deploy, source="x")
    assert [one.name for one in lanes.pool_of(deploy.demos)] == ["api", "any"]
    assert fitting(deploy.demos.demonstrators, "calc_sum/train/1") == ["api", "any"]
    assert fitting(deploy.demos.demonstrators, TASK) == ["any"]
    with pytest.raises(ConfigError, match="no member can show text_editor"):
        lanes.members_of([TASK], deploy.demos.demonstrators[:1])

    def refused(*pool: dict[str, object]) -> str:
        with pytest.raises(ConfigError) as caught:
            lanes.pool_of(build({"demos": {"demonstrators": list(pool)}}, Deploy, source="x").demos)
        return str(caught.value)

    oracle: dict[str, object] = {"type": "oracle", "name": "o"}
    assert "o is there twice" in refused(oracle, oracle)
    assert "names no member" in refused({**oracle, "name": "policy"})
    assert "haste is 1" in refused({**oracle, "haste": 1.0})
    assert "route: expected one of '', api, gui, mixed, got apl" in refused({**oracle, "route": "apl"})
    assert "unknown key demos.demonstrators.0.nois" in refused({**oracle, "nois": 1.0})
    assert [one.name for one in lanes.pool_of(DemonstrationsConfig(attempts_per_task=1))] == [
        "api",
        "gui",
        "by-turns",
    ]
