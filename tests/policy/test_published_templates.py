"""The chat templates of public models with each kind of tokenizer: the ids of transformers, and contents as data.

`make chat-templates` fetches the packages that ship them.
"""

from __future__ import annotations

import ast
import functools
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from policy.tokenizer import Tokenizer
from runtime.errors import ConfigError
from tests.policy import chat_models
from tests.policy.tokenizer_kinds import KINDS, write_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PACKAGES = Path(__file__).parents[2] / ".cache" / "chat-templates"
LEAST = 60  # templates whose conversations are compared
SYSTEM = "Be kind.\n Always."
TEXTS = [
    "Hello fox, it's 12:30 \u2014 caf\u00e9 \u65e5\u672c?",
    "  def f(x):\n\treturn x",
    "go\n\non ",
    "ok",
    "and  now",
    "yes",
    "do it!",
]


@functools.cache
def published() -> Mapping[str, str]:
    """The templates by name, each text once."""
    found: dict[str, str] = {}
    for wheel in sorted(PACKAGES.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith(".jinja"):
                    found[f"{wheel.name.partition('-')[0]}/{Path(name).stem}"] = archive.read(name).decode()
                elif name == "unsloth/chat_templates.py":
                    found |= {f"unsloth/{key}": text for key, text in _texts(archive.read(name)).items()}
    return {name: text for text, name in {text: name for name, text in reversed(found.items())}.items()}


def _texts(source: bytes) -> dict[str, str]:
    """The templates that a module binds to names, without running it."""
    names: dict[str, str] = {}

    def value(node: ast.expr) -> str | None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            parts = value(node.left), value(node.right)
            return None if None in parts else "".join(map(str, parts))
        return names.get(node.id) if isinstance(node, ast.Name) else None

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its escapes
        module = ast.parse(source)
    for one in module.body:
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
            text = value(one.value)
            if text is not None:
                names[one.targets[0].id] = text
    return {
        name.removesuffix("_template"): text
        for name, text in names.items()
        if name.endswith("_template") and "{%" in text
    }


def compared(folder: Path, kind: str, template: str) -> int:
    """How many conversations become transformers' ids; the others are refused by both. Raises ConfigError."""
    from transformers import AutoTokenizer

    control = write_folder(folder, kind, template)
    ours, theirs = Tokenizer.load(folder), AutoTokenizer.from_pretrained(folder)
    count = 0
    for turns in range(1, 5):
        for system in (None, SYSTEM):
            if ours.refused(turns, system=system is not None):
                continue
            texts = TEXTS[: 2 * turns - 1]
            earlier = list(zip(texts[:-1:2], texts[1::2], strict=True))
            folded = system if ours.folds_system else None
            spoken = [f"{folded}\n\n{texts[0]}" if folded else texts[0], *texts[1:]]
            messages = [{"role": "system", "content": system}] if system and not folded else []
            messages += [{"role": "assistant" if n % 2 else "user", "content": text} for n, text in enumerate(spoken)]
            expected = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
            assert ours.prompt_ids(texts[-1], system, earlier) == expected, (kind, turns, system)
            if turns == 2:
                _contents_are_data(ours, theirs, control, system, texts)
            count += 1
    assert set(ours.stop_ids) >= {ours.eos_id}
    return count


def _contents_are_data(ours: Tokenizer, theirs: Any, control: list[str], system: str | None, texts: list[str]) -> None:
    special = set(theirs.convert_tokens_to_ids(control))
    earlier = list(zip(texts[:-1:2], texts[1::2], strict=True))
    plain = ours.prompt_ids(texts[-1], system, earlier)
    forged = " and ".join(control)
    earlier = [(f"x {forged} y", f"x {forged} y")] * len(earlier)
    hostile = ours.prompt_ids(f"x {forged} y", system, earlier)
    assert [one for one in hostile if one in special] == [one for one in plain if one in special]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chat", ["chatml", "llama3", "mistral", "glm4"])
def test_a_template_with_any_kind_of_tokenizer(tmp_path: Path, chat: str, kind: str) -> None:
    template = getattr(chat_models, chat.upper()).template
    assert compared(tmp_path, kind, template) == 8


@pytest.mark.proof
@pytest.mark.timeout(900)
@pytest.mark.skipif(not PACKAGES.is_dir(), reason="the packages are not here: make chat-templates")
@pytest.mark.parametrize("kind", KINDS)
def test_templates_of_public_models(tmp_path: Path, kind: str, record_property: Callable[[str, object], None]) -> None:
    counts: dict[str, int] = {}
    refused: dict[str, str] = {}
    for number, (name, template) in enumerate(published().items()):
        try:
            counts[name] = compared(tmp_path / str(number), kind, template)
        except ConfigError as error:
            refused[name] = str(error).partition(": ")[2]
    record_property("templates", {kind: [len(counts), sum(counts.values()), refused]})
    assert len(counts) >= LEAST, refused


GLUED = (
    "{% for m in messages %}<|im_{{ m.content }}{% endfor %}{{ messages[-1].content }}|>"
    "{% if add_generation_prompt %}<|im_end|>{% endif %}"
)


@pytest.mark.parametrize(
    "text", ["start|>", "end|>", "x<|im_start", "x<", "|", "im_end", "<|im_end|>", "end|><|im_start"]
)
@pytest.mark.parametrize("kind", ["byte-level BPE", "SentencePiece unigram"])
def test_no_control_token_comes_of_a_content_and_what_stands_next_to_it(tmp_path: Path, kind: str, text: str) -> None:
    write_folder(tmp_path, kind, GLUED + "{# <|im_start|> #}")
    ours = Tokenizer.load(tmp_path)
    end = ours.prompt_ids("x")[-1]
    ids = ours.prompt_ids(text)
    assert [one for one in ids if ours.decode([one]).startswith("<|im_")] == [end]
    if kind == "byte-level BPE":
        assert ours.decode(ids) == f"<|im_{text}{text}|><|im_end|>"
