"""Small tokenizers of the kinds that public models have, trained on a few lines."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

LINES = [
    "the quick brown fox jumps over the lazy dog Hello world, be kind: it is 12 o'clock\n",
    "def f(x):\n\treturn x ** 2 if x else None  # caf\u00e9 na\u00efve \u65e5\u672c\u8a9e\n\n",
    "You are a helpful assistant. user assistant system <a href='x'> </a> [x] {y} | end start think\n",
] * 9
BOS, EOS, UNKNOWN = "<s>", "</s>", "<unk>"
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
_FALLBACK = [f"<0x{byte:02X}>" for byte in range(256)]


def _trained(tokenizer: Tokenizer, special: Sequence[str], alphabet: Sequence[str]) -> Tokenizer:
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=list(special), initial_alphabet=list(alphabet), show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    return tokenizer


def _byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _trained(tokenizer, [BOS, EOS], _BYTES)


def _tiktoken() -> Tokenizer:
    """As transformers turns a tiktoken file into a fast tokenizer."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    split = pre_tokenizers.Split(Regex(SPLIT), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return _trained(tokenizer, [BOS, EOS], _BYTES)


def _sentencepiece(scheme: str) -> Tokenizer:
    """BPE with bytes for what it has not learnt; `scheme` says where a text gets a space in front."""
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN, byte_fallback=True, fuse_unk=True))
    space = decoders.Replace("\u2581", " ")
    ends = [decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    if scheme == "legacy":
        parts = [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
        tokenizer.normalizer = normalizers.Sequence(parts)
    elif scheme == "none":
        tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
        ends.pop()
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    tokenizer.decoder = decoders.Sequence([space, *ends])
    return _trained(tokenizer, [UNKNOWN, BOS, EOS, *_FALLBACK], [])


def _unigram() -> Tokenizer:
    """SentencePiece's other model: a special token's own text is a piece of its vocabulary."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    special = [UNKNOWN, BOS, EOS]
    trainer = trainers.UnigramTrainer(
        vocab_size=500, special_tokens=special, unk_token=UNKNOWN, show_progress=False,
        initial_alphabet=sorted(set("".join(LINES))),
    )  # fmt: skip
    tokenizer.train_from_iterator(LINES, trainer)
    return tokenizer


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "byte-level BPE": _byte_level,
    "tiktoken": _tiktoken,
    "SentencePiece BPE, legacy": lambda: _sentencepiece("legacy"),
    "SentencePiece BPE, first": lambda: _sentencepiece("first"),
    "SentencePiece BPE, none": lambda: _sentencepiece("none"),
    "SentencePiece unigram": _unigram,
}


@functools.cache
def _state(kind: str) -> str:
    return KINDS[kind]().to_str()


_CONTROL = re.compile(
    r"<[|\uff5c][^<>'\"\s+]{1,40}[|\uff5c]>|<[a-z]\w*(?:of|start|end|turn|header)\w*>|\[/?[A-Z_]{3,20}\]|</?s>|<bos>|<eos>"
)


def control_tokens(template: str) -> list[str]:
    """The control tokens that a template's source names."""
    return sorted({*_CONTROL.findall(template)} - {BOS, EOS})


def write_folder(folder: Path, kind: str, template: str) -> list[str]:
    """Make `folder` that of a tokenizer of `kind` with a chat template, and give its control tokens.

    Every third one is no special token of the tokenizer, as in DeepSeek's.
    """
    tokenizer = Tokenizer.from_str(_state(kind))
    tokens = control_tokens(template)
    for number, token in enumerate(tokens):
        tokenizer.add_tokens([AddedToken(token, normalized=False, special=number % 3 != 2)])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS, "eos_token": EOS, "unk_token": UNKNOWN}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text(template)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "eos_token_id": 2}))
    return [BOS, EOS, *tokens]
