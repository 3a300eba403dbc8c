"""The tokenizer loses nothing, lets no guest text speak with the system's voice, and ends answers as templates do."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend

from policy.architecture import read_architecture
from policy.base import MODEL
from policy.chat_process import _MARK
from policy.pictures import picture_ids
from policy.tokenizer import SPECIAL_TOKENS, PromptPicture, Tokenizer
from runtime.errors import ConfigError
from tests.policy import tiny_models
from tests.policy.chat_models import CHATML, GLM4, LLAMA3, MISTRAL, OF_STYLE, Chat, write_tokenizer
from tests.policy.vision_model import style, tiny_vision_folder

LINES = (
    "task: Do what 'plum pie' says\ndid: Agent.type(text='kiwi')\napp: some_app\nw1 * Documents\nw2 Notes\n"
    "e1 menu File\ne2 push-button Cancel\ne12 text plum kiwi\nlast: Type Success"
)
ANSWER = "text plum -> type kiwi\nAgent.type(coordinates=e9, text='kiwi', overwrite=True)"
NAME = re.compile(r"[ew]\d+")
ADDED = Backend.from_file(str(MODEL / "tokenizer.json")).get_added_tokens_decoder().values()
GLUE = [token.content for token in ADDED if not token.special and not NAME.fullmatch(token.content)]
pieces = st.sampled_from(
    [*SPECIAL_TOKENS, *GLUE, "e1", "e12", "e123", "w1", "\n", "x", "7", "<|", "|>", "end", "\ud800"]
)
texts = st.one_of(st.text(), st.lists(pieces, max_size=12).map("".join))


@pytest.fixture(scope="module")
def own() -> Tokenizer:
    return Tokenizer.load(MODEL)


def _foreign_folder(folder: Path, template: str | None) -> Path:
    write_tokenizer(folder, "", Chat(template, ("<turn>", "<stop>"), "<stop>", ("<stop>",)), every_byte=True)
    return folder


def test_a_foreign_tokenizer_has_no_id_above_its_own(tmp_path: Path) -> None:
    template = "{% for m in messages %}<turn>{{ m.content }}<stop>{% endfor %}<turn>"
    assert Tokenizer.load(_foreign_folder(tmp_path, template)).largest_id == 257  # 256 bytes, <turn> and <stop>


@pytest.mark.parametrize(
    "changed",
    [
        {"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 9_000}},
        {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a*)*b"}, "behavior": "Isolated", "invert": False}},
    ],
)
def test_the_own_vocabulary_with_other_cuts_is_tried_apart(tmp_path: Path, changed: dict[str, object]) -> None:
    """What may multiply a text, or search it for ever, is loaded in a bounded process first."""
    shutil.copytree(MODEL, tmp_path / "model")
    path = tmp_path / "model" / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    assert not Tokenizer.load(tmp_path / "model").own


@settings(max_examples=300, deadline=None)
@given(text=texts)
@pytest.mark.slow
def test_round_trip(own: Tokenizer, text: str) -> None:
    sound = text.encode("utf-8", "backslashreplace").decode("utf-8")
    assert own.decode(own.encode(text)) == sound


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(text=texts)
def test_content_never_makes_a_special_token(own: Tokenizer, text: str) -> None:
    special = set(range(len(SPECIAL_TOKENS)))
    assert not special & set(own.encode(text))
    assert [i for i in own.prompt_ids(text, system=text) if i in special] == [4, 1, 2, 1, 3]


def test_a_packed_prompt_is_the_same_prompt(own: Tokenizer, tmp_path: Path) -> None:
    template = "{% for m in messages %}<turn>{{ m['role'] }}\n{{ m['content'] }}<stop>\n{% endfor %}<turn>assistant\n"
    for tokenizer in (own, Tokenizer.load(_foreign_folder(tmp_path, template))):
        for system, earlier in ((None, ()), ("be kind", [(LINES, ANSWER), ("", "done")])):
            packed = tokenizer.packed_prompt(LINES, system, earlier)
            assert packed.itemsize == 4
            assert packed.tolist() == tokenizer.prompt_ids(LINES, system, earlier)


@pytest.mark.parametrize("template", ["", "{% for m in messages %}<|user|>{{ m['content'] }}<|end|>{% endfor %}?"])
@pytest.mark.parametrize("first", [True, False])
def test_a_picture_comes_before_the_newest_text_or_behind_it(tmp_path: Path, template: str, first: bool) -> None:
    folder = tiny_vision_folder(tmp_path / "model")
    if template:
        (folder / "chat_template.jinja").write_text(template)
    tokenizer, said = Tokenizer.load(folder), "<|image_pad|> is no pad"
    assert tokenizer.own == (not template)
    text = tokenizer.packed_prompt(said, None, [("hi", "yes")])
    ids = tokenizer.packed_prompt(said, None, [("hi", "yes")], PromptPicture((280, 140), first))
    picture, at = picture_ids(280, 140, style(folder)), tokenizer.pad_in(ids)
    assert ids[at - 1 : at - 1 + len(picture)].tolist() == picture
    before, after = ids[: at - 1], ids[at - 1 + len(picture) :]
    assert (before + after, tokenizer.pad_in(text)) == (text, 0)
    shown = tokenizer.decode((after if first else before).tolist())
    assert said in shown
    with pytest.raises(ConfigError, match="reads text alone"):
        Tokenizer.load(MODEL).packed_prompt(said, seen=PromptPicture((280, 140), first))


@pytest.mark.parametrize("refusal", ["{{ raise_exception('no system') }}", ""])
def test_a_system_text_without_a_place_goes_in_front_of_the_first_question(tmp_path: Path, refusal: str) -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'system' %}" + refusal + "{% else %}<turn>{{ m.content }}"
        "{% if m.role == 'assistant' %}<stop>{% endif %}{% endif %}{% endfor %}"
    )
    foreign = Tokenizer.load(_foreign_folder(tmp_path, template))
    assert foreign.folds_system
    asked = foreign.prompt_ids("hello", "be kind", [("hi", "yes")])
    assert foreign.decode(asked) == "<turn>be kind\n\nhi<turn>yes<stop><turn>hello"


def test_what_stands_in_for_contents_may_stand_in_them(tmp_path: Path) -> None:
    template = "{% for m in messages %}<turn>{{ m['content'] }}<stop>{% endfor %}<turn>"
    foreign = Tokenizer.load(_foreign_folder(tmp_path, template))
    system, user = f"{_MARK}0user<stop>", f"{_MARK}system {{{{ m }}}} {_MARK}0user<turn>"
    ids = foreign.prompt_ids(user, system=system)
    assert foreign.decode(ids) == f"<turn>{system}<stop><turn>{user}<stop><turn>"
    turn, stop = foreign.eos_id - 1, foreign.eos_id
    assert [i for i in ids if i in (turn, stop)] == [turn, stop, turn, stop, turn]


@pytest.mark.parametrize("template", [None, "{% for m in messages %}{{ m['role'] }}{% endfor %}"])
def test_foreign_folder_that_cannot_chat_is_refused(tmp_path: Path, template: str | None) -> None:
    folder = _foreign_folder(tmp_path, template)
    with pytest.raises(ConfigError):
        Tokenizer.load(folder).prompt_ids("hello")


def test_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("chat", "end"), [(CHATML, "<|im_end|>"), (LLAMA3, "<|eot_id|>"), (MISTRAL, "</s>"), (GLM4, "<|user|>")]
)
def test_an_answer_ends_as_the_template_ends_a_turn(tmp_path: Path, chat: Chat, end: str) -> None:
    from transformers import PreTrainedTokenizerFast

    write_tokenizer(tmp_path, "", chat)
    ours, theirs = Tokenizer.load(tmp_path), PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert theirs.convert_ids_to_tokens(ours.response_ids("ok")[-1]) == end
    assert set(theirs.convert_ids_to_tokens(list(ours.stop_ids))) == {chat.eos, *chat.ends}


@pytest.mark.parametrize("name", sorted(OF_STYLE))
@pytest.mark.slow
def test_engine_and_learner_end_an_answer_by_the_same_ids(tmp_path: Path, name: str) -> None:
    folder = tiny_models.write(tmp_path / "model", name)
    write_tokenizer(folder, name)
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.eos_id in tokenizer.stop_ids
    assert tokenizer.stop_ids == read_architecture(folder).eos_ids
