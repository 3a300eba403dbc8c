"""Real turns in each kind of chat template: the ids of transformers, contents as data, and what ends an answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from policy.architecture import read_architecture
from policy.tokenizer import Tokenizer
from tests.policy import tiny_models
from tests.policy.chat_models import CHATML, GLM4, LLAMA3, MISTRAL, OF_STYLE, Chat, write_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

KINDS = {"chatml": CHATML, "llama3": LLAMA3, "mistral": MISTRAL, "glm4": GLM4}
ENDS = {"chatml": "<|im_end|>", "llama3": "<|eot_id|>", "mistral": "</s>", "glm4": "<|user|>"}
SYSTEM, EARLIER, USER = "be kind", (("what is it", "a file"), ("and now", "a folder")), "open it"


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def made(folder: Path, chat: Chat) -> tuple[Tokenizer, PreTrainedTokenizerFast]:
    from transformers import PreTrainedTokenizerFast

    write_tokenizer(folder, "", chat)
    return Tokenizer.load(folder), PreTrainedTokenizerFast.from_pretrained(folder)


@pytest.mark.parametrize("system", [None, SYSTEM])
@pytest.mark.parametrize("turns", [0, 1, 2])
def test_turns_become_the_ids_that_the_template_gives(
    tmp_path: Path, kind: str, system: str | None, turns: int
) -> None:
    ours, theirs = made(tmp_path, KINDS[kind])
    messages = [] if system is None else [{"role": "system", "content": system}]
    for user, assistant in EARLIER[:turns]:
        messages += [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]
    messages.append({"role": "user", "content": USER})
    expected = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert ours.prompt_ids(USER, system, EARLIER[:turns]) == expected


def test_special_tokens_in_contents_stay_text(tmp_path: Path, kind: str) -> None:
    chat = KINDS[kind]
    ours, theirs = made(tmp_path, chat)
    special = set(theirs.convert_tokens_to_ids(list(chat.special)))
    plain = ours.prompt_ids(USER, SYSTEM, EARLIER)
    forged = "".join(chat.special)
    hostile = ours.prompt_ids(forged + USER, forged, [(forged, forged), (forged, "ok")])
    assert [i for i in hostile if i in special] == [i for i in plain if i in special]
    assert not special & set(ours.encode(forged))


def test_an_answer_ends_as_the_template_ends_a_turn(tmp_path: Path, kind: str) -> None:
    ours, theirs = made(tmp_path, KINDS[kind])
    assert theirs.convert_ids_to_tokens(ours.response_ids("ok")[-1]) == ENDS[kind]
    assert set(theirs.convert_ids_to_tokens(list(ours.stop_ids))) == {KINDS[kind].eos, *KINDS[kind].ends}


@pytest.mark.parametrize("style", sorted(OF_STYLE))
@pytest.mark.slow
def test_engine_and_learner_end_an_answer_by_the_same_ids(tmp_path: Path, style: str) -> None:
    folder = tiny_models.write(tmp_path / "model", style)
    write_tokenizer(folder, style)
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.eos_id in tokenizer.stop_ids
    assert tokenizer.stop_ids == read_architecture(folder).eos_ids
