"""Tasks on Writer: replace a word everywhere, append a paragraph or delete one, and save.

Invariant: the two splits share no wording and, since words are split by their hash, no name and no value. A word that
is replaced is no part of another word.
"""

from __future__ import annotations

from random import Random

from apis.tasks.families.writer import writer_oracle
from apis.tasks.families.writer.common import TEXT_DOCUMENT, TextDocumentGoal, drawn, plain
from apis.tasks.view import Move, View
from apis.tasks.words import HELD_OUT, TRAIN

TEMPLATES = {
    "replace": {
        TRAIN: (
            "Replace '{old}' by '{new}' everywhere in the document and save",
            "In {file}, every '{old}' should be '{new}'",
            "Write '{new}' in place of '{old}' throughout {file}",
            "The word '{old}' is wrong in {file}, it must be '{new}' everywhere",
        ),
        HELD_OUT: (
            "Change each '{old}' in {file} to '{new}' and save",
            "Wherever {file} says '{old}', it should say '{new}'",
        ),
    },
    "append": {
        TRAIN: (
            "Append the paragraph '{new}' to the document and save",
            "Add '{new}' as the last paragraph of {file}",
            "{file} should end with a new paragraph '{new}'",
            "Write '{new}' at the end of {file}, in its own paragraph",
        ),
        HELD_OUT: (
            "Put a new paragraph '{new}' at the end of {file} and save",
            "The last paragraph of {file} should be a new one, '{new}'",
        ),
    },
    "delete": {
        TRAIN: (
            "Delete the paragraph '{old}' and save",
            "Remove the paragraph '{old}' from {file}",
            "The paragraph '{old}' should not be in {file}",
            "Take '{old}' out of {file}",
        ),
        HELD_OUT: (
            "The paragraph '{old}' of {file} is not needed, delete it and save",
            "'{old}' must go from {file}, delete that paragraph",
        ),
    },
}


def _replace(random: Random, split: str) -> tuple[str, str, str, list[str], list[str]]:
    (*texts,), (stem, old, new) = drawn(random, split, [random.choice((1, 2)) for _ in range(3)], 3)
    for at in random.sample(range(3), random.choice((1, 2, 2))):
        texts[at] = random.choice((f"{old} {texts[at]}", f"{texts[at]} {old}"))
    return stem, old, new, texts, [text.replace(old, new) for text in texts]


def goal(random: Random, split: str) -> TextDocumentGoal:
    """What an instance of `split` asks for."""
    kind = random.choice(sorted(TEMPLATES))
    if kind == "replace":
        stem, old, new, start, after = _replace(random, split)
    else:
        texts, (stem,) = drawn(random, split, [2] * random.choice((3, 4)), 1)
        old, new, start, after = "", "", texts, texts
        if kind == "append":
            new, start = texts[-1], [*texts[:-1], ""]
        else:
            old = random.choice(texts)
            after = [text for text in texts if text != old]
    return TextDocumentGoal(
        kind=kind,
        instruction=random.choice(TEMPLATES[kind][split]).format(old=old, new=new, file=f"{stem}.docx"),
        target=f"{stem}.docx",
        words=tuple(part for part in (old, new) if part),
        start=tuple(start),
        finish=plain(after),
    )


def _by_one_call(view: View, goal: TextDocumentGoal) -> Move:
    if goal.kind == "append":
        return writer_oracle.appended(view, goal)
    old, new = (*goal.words, "")[:2]
    first = next(text for text in goal.before if old in text)
    return writer_oracle.tool(view, first, "find_and_replace", pattern=old, replacement=new)


FAMILY = TEXT_DOCUMENT.family(
    "writer_text",
    TEMPLATES,
    goal,
    writer_oracle.routes(writer_oracle.texts_by_gui, writer_oracle.texts_by(_by_one_call)),
)
