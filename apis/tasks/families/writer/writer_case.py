"""Tasks on Writer that are never trained on: write a paragraph in capitals, and save.

Invariant: only the held-out split exists, and its words are split by their hash.
"""

from __future__ import annotations

from random import Random

from apis.tasks.families.writer import writer_oracle
from apis.tasks.families.writer.common import TEXT_DOCUMENT, TextDocumentGoal, drawn, plain
from apis.tasks.view import Move, View
from apis.tasks.words import HELD_OUT, TRAIN

TEMPLATES = {
    "capitals": {
        TRAIN: (),
        HELD_OUT: (
            "Write the paragraph '{text}' in capitals and save",
            "All letters of '{text}' in {file} should be capitals",
            "Turn the paragraph '{text}' of {file} into capital letters",
        ),
    }
}


def goal(random: Random, split: str) -> TextDocumentGoal:
    """What an instance of `split` asks for."""
    texts, (stem,) = drawn(random, split, [random.choice((1, 2)) for _ in range(random.choice((3, 4)))], 1)
    text = random.choice(texts)
    return TextDocumentGoal(
        kind="capitals",
        instruction=random.choice(TEMPLATES["capitals"][split]).format(text=text, file=f"{stem}.docx"),
        target=f"{stem}.docx",
        words=(text,),
        start=tuple(texts),
        finish=plain([each.upper() if each == text else each for each in texts]),
    )


def _by_one_call(view: View, goal: TextDocumentGoal) -> Move:
    text = goal.words[0]
    return writer_oracle.tool(view, text, "change_text_case", case_type="uppercase", pattern=text)


FAMILY = TEXT_DOCUMENT.family(
    "writer_case",
    TEMPLATES,
    goal,
    writer_oracle.routes(writer_oracle.texts_by_gui, writer_oracle.texts_by(_by_one_call)),
)
