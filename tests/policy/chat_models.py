"""Tokenizers of a hundred ids with chat templates of the kinds that models have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend


class Chat(NamedTuple):
    """A kind of chat template."""

    template: str | None
    special: tuple[str, ...]
    eos: str  # the tokenizer's own
    ends: tuple[str, ...]  # of generation_config.json


CHATML = Chat(
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    ("<|im_start|>", "<|im_end|>", "<|endoftext|>"),
    "<|im_end|>",
    ("<|im_end|>", "<|endoftext|>"),
)
LLAMA3 = Chat(
    "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n'"
    " + m['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
    ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    "<|end_of_text|>",
    ("<|end_of_text|>", "<|eot_id|>"),
)
MISTRAL = Chat(  # the system text stands in the first turn of the user
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}"
    "{% set turns = messages[1:] %}{% else %}{% set turns = messages %}{% endif %}"
    "{% for m in turns %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles take turns') }}{% endif %}"
    "{% if m['role'] == 'user' %}{% if loop.first and system is defined %}"
    "{{ '[INST] ' + system + '\\n\\n' + m['content'] + '[/INST]' }}{% else %}{{ '[INST] ' + m['content'] + '[/INST]' }}"
    "{% endif %}{% else %}{{ ' ' + m['content'] | trim + eos_token }}{% endif %}{% endfor %}",
    ("<s>", "</s>", "[INST]", "[/INST]"),
    "</s>",
    ("</s>",),
)
GLM4 = Chat(  # a turn of the assistant ends where the next speaker begins
    "[gMASK]<sop>{% for m in messages %}{{ '<|' + m['role'] + '|>\\n' + m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}",
    ("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
    "<|endoftext|>",
    ("<|endoftext|>", "<|user|>", "<|observation|>"),
)
OF_STYLE = {"qwen2": CHATML, "qwen3": CHATML, "llama": LLAMA3, "llama3": LLAMA3, "mistral": MISTRAL, "glm4": GLM4}
LETTERS = " .?!\n-'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ<>|_[]{}/0123456789"


def write_tokenizer(folder: Path, style: str, chat: Chat | None = None, *, every_byte: bool = False) -> Chat:
    """Put a tokenizer of single letters into model folder `folder`, with the chat template of `style`, or `chat`.

    With `every_byte` it has all 256 of them.
    """
    from transformers import PreTrainedTokenizerFast

    chat = chat or OF_STYLE[style]
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(LETTERS)
    signs = sorted(pre_tokenizers.ByteLevel.alphabet()) if every_byte else "".join(word for word, _ in letters)
    vocab = {letter: i for i, letter in enumerate(dict.fromkeys(signs))}
    backend = Backend(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True) for token in chat.special])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token=chat.special[0], eos_token=chat.eos, pad_token=chat.eos
    )
    fast.chat_template = chat.template
    fast.save_pretrained(folder)
    ends = [backend.token_to_id(token) for token in chat.ends]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    return chat
