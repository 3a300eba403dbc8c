"""Tasks on two applications: a note open in the text editor says what the last paragraph of a document shall be.

Invariant: the words stand in the note only. Nothing is written before they were quoted in this very episode.
"""

from __future__ import annotations

from random import Random

from apis.tasks.families.note import EDITOR, noted, read
from apis.tasks.families.writer import writer_oracle
from apis.tasks.families.writer.common import TEXT_DOCUMENT, WRITER, TextDocumentGoal, drawn, plain
from apis.tasks.view import Decide, Move, View
from apis.tasks.words import HELD_OUT, TRAIN

TEMPLATES = {
    "append": {
        TRAIN: (
            "Append the words of {note} to {file} as a paragraph and save",
            "{file} should end with what {note} says",
            "Write what the note {note} says at the end of {file}",
            "Copy the line in {note} into a new last paragraph of {file}",
        ),
        HELD_OUT: (
            "Put the line of {note} at the end of {file} and save",
            "The note {note} holds the last paragraph of {file}, add it there",
        ),
    }
}


def goal(random: Random, split: str) -> TextDocumentGoal:
    """What an instance of `split` asks for."""
    texts, (stem, note) = drawn(random, split, [random.choice((1, 2)), 2, random.choice((1, 2))], 2)
    *start, says = texts
    return TextDocumentGoal(
        kind="append",
        instruction=random.choice(TEMPLATES["append"][split]).format(note=f"{note}.txt", file=f"{stem}.docx"),
        target=f"{stem}.docx",
        wanted=says,
        files=((f"{note}.txt", f"{says}\n"),),
        start=(*start, ""),
        finish=plain(texts),
    )


def _after_reading(write: Decide) -> Decide:
    def decide(view: View) -> Move:
        says = view.goal.wanted
        if not noted(view, says):
            return read(view, view.goal.files[0][0], says)
        return write(view)

    return decide


_WRITE = writer_oracle.routes(writer_oracle.texts_by_gui, writer_oracle.texts_by(writer_oracle.appended))

FAMILY = TEXT_DOCUMENT.family(
    "doc_from_note",
    TEMPLATES,
    goal,
    {name: _after_reading(write) for name, write in _WRITE.items()},
    apps=(WRITER, EDITOR),
    opened=lambda made: (made.target, made.files[0][0]),
)
