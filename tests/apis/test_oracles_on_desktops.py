"""Oracles solve their tasks on real desktops, in both forms; what does not solve them fails."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import oracle_play

from apis import tasks
from apis.forms import Turn
from apis.observation import Observation


@pytest.fixture
def state_dir() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="crl", dir="/run") as folder:
        Path(folder).chmod(0o755)  # desktops have users of their own
        yield folder


@pytest.mark.parametrize("family", sorted(tasks.FAMILIES))
async def test_oracles_solve_their_tasks(family: str, state_dir: str) -> None:
    async with oracle_play.provider(state_dir) as made:
        for task_id, form, noise in ((f"{family}/train/3", "compact", 0.2), (f"{family}/held-out/2", "paper", 0.0)):
            oracle = tasks.oracle(task_id, seed=5, noise=noise)

            def answers(
                observation: Observation, history: list[Turn], oracle: tasks.Oracle = oracle, form: str = form
            ) -> str:
                return oracle.answer(observation, history, form)

            played = await oracle_play.play(made, task_id, answers, form)
            assert played.success, (played.reason, played.steps)
            assert all(len(step["prompt"]) < 2000 for step in played.steps)


async def test_a_claim_without_the_deed_fails_and_a_refusal_is_told_at_once(state_dir: str) -> None:
    said = iter(("Agent.clik(e1)", "Agent.type(text='x')", "Agent.exit(success=True)"))
    async with oracle_play.provider(state_dir) as made:
        played = await oracle_play.play(made, "text_editor/train/1", lambda _, __: next(said))
    assert not played.success
    assert [step["prompt"].splitlines()[-1] for step in played.steps] == [
        "last: None",
        "last: there is no function Agent.clik: did you mean Agent.click?",
        "last: Type Success",
    ]
    assert "did: refused" in played.steps[1]["prompt"].splitlines()
