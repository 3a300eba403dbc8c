"""The ids of a text's parts are the ids of the whole text, whichever tokenizer it is for."""

from __future__ import annotations

import functools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from deploy.recipes.base_tokenizer import build_tokenizer
from policy import token_cache
from policy.token_cache import _OF_CL100K, KnownParts, cut_of, whole

# What learns to join white space with letters and signs would show a cut that lies wrong.
LEARNED = [
    "menu\tFile\t(19, 36)\t(38, 22)\ntable-cell\tA1 99546\t(100, 208)\t(80, 17)\n\n  it's   John's\t\tcafe\u0301 !\r\n",
    "* Apps: Window ID    App Name    Title\n0x01400000    libreoffice_calc    book1.xlsx\n\n* A11y Tree: tag\ttext\n",
    "def f(x):\n\treturn x\n\n\n    '''I'll do 1234567 \u00e9t\u00e9\u3000\u00a0x'''\n",
]
PIECES = st.sampled_from(
    [*"aZ9'.,(-!\n\r\t ", "  ", "\n\n", " \n", "\n ", "'s", "'LL", "\u0301", "\u00e9", "\u017f", "\u212a", "\u00b2",
     "\u00a0", "\u3000", "\u200b", "\u180e", "\x85", "\x1c", "\x0b", "menu", "12345", "\u4e16", "\U0001f600", "<|end|>",
     "<tool>", "e1", "w2", "task: ", "\ndid: ", "\nAgent.", " menu ", "last: ", "app: ", " -> ", "\nlast: "]
)  # fmt: skip
TEXTS = st.one_of(st.lists(PIECES, max_size=24).map("".join), st.text(max_size=30))


def _trained(pre: pre_tokenizers.PreTokenizer, normalizer: normalizers.Normalizer | None = None) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False,
        special_tokens=["<|end|>"],
    )  # fmt: skip
    tokenizer.train_from_iterator(LEARNED * 3, trainer)
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False)])
    tokenizer.encode_special_tokens = True
    return tokenizer


def _split(pattern: str) -> pre_tokenizers.PreTokenizer:
    by = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    return pre_tokenizers.Sequence([by, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


@functools.cache
def _cut_for(kind: str) -> Tokenizer:
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made = {
        "gpt2": lambda: _trained(gpt2),
        "gpt2, NFC": lambda: _trained(gpt2, normalizers.NFC()),
        "llama3": lambda: _trained(_split(_OF_CL100K)),
        "qwen": lambda: _trained(_split(_OF_CL100K.replace("{1,3}", "")), normalizers.NFC()),
        "bundled": lambda: build_tokenizer(words=2000),
    }[kind]()
    made.encode_special_tokens = True
    return made


@pytest.mark.parametrize("kind", ["gpt2", "gpt2, NFC", "llama3", "qwen", "bundled"])
@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
@example(text=LEARNED[0] + LEARNED[1])
@example(text="x\u3000 y \u180e z\x85\n a\x1c b")
@example(text="a)\r\n\r\nb) \n\n c\n")
def test_parts_give_the_ids_of_the_whole(kind: str, text: str) -> None:
    tokenizer = _cut_for(kind)
    parts = cut_of(tokenizer)(text)
    assert "".join(parts) == text
    ids = [i for part in parts for i in tokenizer.encode(part, add_special_tokens=False).ids]
    assert ids == tokenizer.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("kind", ["gpt2", "gpt2, NFC", "llama3", "qwen", "bundled"])
def test_a_screen_is_cut_small(kind: str) -> None:
    assert len(cut_of(_cut_for(kind))("menu\tFile\t(19, 36)\nmenu\tEdit\t(59, 36)\nmenu\tView\t(99, 36)\n")) >= 3


def _changed(change: str) -> Tokenizer:
    tokenizer = _trained(pre_tokenizers.ByteLevel(add_prefix_space=False))
    if change == "prefix":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    elif change == "metaspace":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    elif change == "none":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([])
    elif change == "unknown":
        tokenizer.pre_tokenizer = _split(r"\s?\S+\s|\S+")
    elif change == "lowercase":
        tokenizer.normalizer = normalizers.Lowercase()
    elif change == "dropout":
        tokenizer.model.dropout = 0.5
    elif change == "words":
        tokenizer.model = models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")
    elif change == "stripping":
        tokenizer.add_tokens([AddedToken("<mask>", lstrip=True)])
    elif change == "stripping right":
        tokenizer.add_tokens([AddedToken("<mask>", rstrip=True)])
    elif change == "across":
        tokenizer.add_tokens([AddedToken("two words")])
    elif change == "single":
        tokenizer.add_tokens([AddedToken("end\n", single_word=True)])
    elif change == "twice":
        tokenizer.post_processor = processors.TemplateProcessing(single="$A $A", pair="$A $B", special_tokens=[])
    elif change == "truncated":
        tokenizer.enable_truncation(8)
    return tokenizer


@pytest.mark.parametrize("kind", ["gpt2", "llama3", "qwen"])
@pytest.mark.parametrize("token", ["\n\nHuman:", " \nx", "a\n b", "two words", " three", "four\n", "five"])
def test_a_cut_parts_no_added_token(kind: str, token: str) -> None:
    tokenizer = Tokenizer.from_str(_cut_for(kind).to_str())
    tokenizer.add_tokens([AddedToken(token, normalized=False)])
    cut = cut_of(tokenizer)
    for text in (f"a b{token} hi", f"a b\n\n{token}hi", f"a. {token}\n{token} c", f"\n{token}{token}"):
        ids = [i for part in cut(text) for i in tokenizer.encode(part, add_special_tokens=False).ids]
        assert ids == tokenizer.encode(text, add_special_tokens=False).ids


CHANGES = ["prefix", "metaspace", "none", "unknown", "lowercase", "dropout", "words", "stripping", "stripping right",
           "across", "single", "twice", "truncated"]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_where_nothing_is_certain_a_text_stays_whole(change: str) -> None:
    assert cut_of(_changed("")) is not whole
    assert cut_of(_changed(change)) is whole


@pytest.mark.parametrize("change", ["prefix", "metaspace", "across", "unknown"])
def test_such_a_tokenizers_ids_are_its_own(change: str) -> None:
    tokenizer = _changed(change)
    tokenizer.add_tokens([AddedToken("two words")])
    for text in (*LEARNED, " two words\ntwo words "):
        expected = tokenizer.encode(text, add_special_tokens=False).ids
        parts = KnownParts(tokenizer)
        assert [list(memoryview(parts.ids(text)).cast("I")) for _ in range(2)] == [expected] * 2


def test_parts_are_made_into_ids_once_and_kept_within_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = _cut_for("gpt2")
    monkeypatch.setattr(token_cache, "KEPT_BYTES", 4000)
    parts = KnownParts(tokenizer)
    texts = [" ".join(f"word{number}" for number in range(first, first + 5)) for first in range(0, 500, 5)]
    for text in texts:
        expected = tokenizer.encode(text, add_special_tokens=False).ids
        assert list(memoryview(parts.ids(text)).cast("I")) == expected
        assert 0 < parts.held_bytes <= 2000
    for text in texts[-3:] * 2 + texts[:1]:
        assert parts.ids_again(text) == parts.ids(text)
    assert parts.held_bytes <= 2000
    monkeypatch.setattr(parts, "_tokenizer", None)
    parts.ids_again(texts[-1])
    with pytest.raises(AttributeError):
        parts.ids(texts[50])
