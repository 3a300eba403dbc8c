"""Reasoning is taken out of an answer, however it is marked, and nothing that it drafts is said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis.actions.grammar import RefusedAnswer, parse
from apis.actions.gui import Click, Type
from apis.actions.reasoning import spoken

DRAFT = "```python\nAgent.exit(success=False)\n```"
REAL = "```python\nAgent.click([20, 15])\n```"
WORDS = """
<think> </think>  <THINK> </Think>  <thinking> </thinking>  <reasoning> </reasoning>
<thought> </thought>  <analysis> </analysis>  <scratchpad> </scratchpad>  <antThinking> </antThinking>
<seed:think> </seed:think>  <inner_monologue> </inner_monologue>  ◁think▷ ◁/think▷  [THINK] [/THINK]
<|begin_of_thought|> <|end_of_thought|>  <|START_THINKING|> <|END_THINKING|>
<｜begin▁of▁thinking｜> <｜end▁of▁thinking｜>  &lt;think&gt; &lt;/think&gt;
<|channel|>analysis<|message|> <|end|><|start|>assistant<|channel|>final<|message|>
<|channel|>commentary<|message|> <|end|><|start|>assistant<|channel|>final<|message|>
""".split()  # noqa: SIM905 - a beginning, its end
PAIRS = [
    *zip(WORDS[::2], WORDS[1::2], strict=True),
    ("<think budget='3'>", "</think >"),
    ("<unused94>thought\n", "<unused95>"),
    ("<|channel>thought\n", "<channel|>"),
    ("analysisWe may", "assistantfinal"),
]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0].strip())
def test_what_is_drafted_between_marks_is_not_said(pair: tuple[str, str]) -> None:
    begin, end = pair
    for text in (
        f"{begin}Maybe\n{DRAFT}\nno{end}\n{REAL}",
        f"Maybe\n{DRAFT}\nno{end}\n{REAL}",  # it began inside
        f"{begin}a {begin}b{end}\n{DRAFT}\n{end}{REAL}",
    ):
        assert parse(text, "files", form="published") == Click(coordinates=(20, 15)), text
    for text in (f"{begin}Maybe\n{DRAFT}\nbut first", f"{begin}Maybe\n{DRAFT}", f"Well. {begin}Maybe\n{DRAFT}\n{end}"):
        for form in ("published", "compact"):
            assert isinstance(parse(text, "files", form=form), RefusedAnswer), text


@pytest.mark.parametrize(
    "text",
    [
        f"<think>a<think>b</think>\n{DRAFT}\nand",
        f"<think>a<analysis>b\n{DRAFT}\n</analysis>\n{DRAFT}",
        f"{REAL}\n<think>but wait",
        "```thinking\nAgent.exit(success=False)\n",
    ],
)
def test_reasoning_that_does_not_end_is_refused_by_its_mark(text: str) -> None:
    refusal = parse(text, "files", form="published")
    assert isinstance(refusal, RefusedAnswer)
    assert "does not end" in refusal.reason


@pytest.mark.parametrize(
    "text",
    [
        f"<think>{DRAFT}</thinking>{REAL}",
        f"<think>{DRAFT}<analysis>x</think>{REAL}",
        f"<think>{DRAFT}</think><reflection>{DRAFT}</reflection>{REAL}",
        f"<think></think>{REAL}",
        f"```thinking\nAgent.exit(success=False)\n```\n{REAL}",
        f"{REAL}\n<think>that was {DRAFT}</think>",
    ],
)
def test_marks_that_do_not_fit_and_labelled_blocks(text: str) -> None:
    assert parse(text, "files", form="published") == Click(coordinates=(20, 15))


@pytest.mark.parametrize("typed", ["<think>", "</think>", "a <analysis> b", "[THINK]", "◁/think▷"])
def test_marks_that_are_typed_are_text(typed: str) -> None:
    for text in (f"so\nAgent.type(text='{typed}')", f"<think>x</think>```python\nAgent.type(text='{typed}')\n```"):
        assert parse(text, "text_editor") == Type(text=typed)


@given(st.lists(st.sampled_from([*(mark for pair in PAIRS for mark in pair), "a", "'", "\n", "Agent.type('"])))
def test_all_of_an_answer_is_said_or_thought(parts: list[str]) -> None:
    text = "".join(parts)
    found = spoken(text)
    assert len(found.said) + len(found.thought) <= len(text)
    assert found.said == text or found.thought or found.unclosed or len(found.said) < len(text)


def test_an_answer_of_marks_alone_says_nothing() -> None:
    for filler in ("<think>", "</think>", "```think\n", "[/THINK]"):
        assert spoken(filler * 1000).said == ""
        assert isinstance(parse(filler * 1000 + REAL, "files"), RefusedAnswer)
