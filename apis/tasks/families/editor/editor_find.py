"""Tasks on the text editor: replace a word by another wherever it stands in a file, and save.

Invariant: the old word stands in the text twice or more, inside no other word, and the new one nowhere.
"""

from __future__ import annotations

from random import Random

from apis.tasks.families import editor_find_oracle
from apis.tasks.family import DOCUMENTS, Goal, of_files
from apis.tasks.words import HELD_OUT, TRAIN, words

NAME = "editor_find"
EXTENSIONS = ("txt", "md", "log")

TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "word": {
        TRAIN: (
            "Replace every '{old}' in {file} by '{new}'",
            "In {file} change the word '{old}' to '{new}' everywhere",
            "Write '{new}' instead of '{old}' throughout {file} and save it",
            "Each '{old}' in the file {file} should be '{new}'",
            "Find '{old}' in {file} and put '{new}' in its place",
            "The word '{old}' in {file} is wrong, it should be '{new}'",
            "Everywhere in {file} '{old}' should become '{new}'",
            "Exchange '{old}' for '{new}' wherever {file} has it",
            "Let {file} say '{new}' wherever it says '{old}'",
            "Find all '{old}' in {file} and make them '{new}'",
            "Correct {file}, it says '{old}' and should say '{new}'",
            "{file} should not say '{old}' any more but '{new}'",
            "Turn every '{old}' of {file} into '{new}' and save the file",
            "No '{old}' should be left in {file}, write '{new}' for it",
            "Use find and replace on {file}, '{old}' becomes '{new}'",
            "All places in {file} with '{old}' should have '{new}'",
        ),
        HELD_OUT: (
            "Change every '{old}' in the file {file} to '{new}'",
            "Replace the word '{old}' by '{new}' everywhere in {file}",
            "Put '{new}' instead of each '{old}' in {file} and save it",
        ),
    },
}


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for."""
    old, new, *others = _apart(words(random, split, 9))
    text = [old] * random.choice((2, 2, 3)) + others[: random.choice((2, 3))]
    random.shuffle(text)
    cut = random.randrange(1, len(text))
    lines = "".join(f"{' '.join(part)}\n" for part in (text[:cut], text[cut:]))
    name = f"{others[-1]}.{random.choice(EXTENSIONS)}"
    wanted = " ".join(new if word == old else word for word in lines.replace("\n", " \n ").split(" "))
    wanted = wanted.replace(" \n ", "\n")
    return Goal(
        family=NAME,
        kind="word",
        instruction=random.choice(TEMPLATES["word"][split]).format(file=name, old=old, new=new),
        target=name,
        wanted=wanted.rstrip("\n"),
        files=((name, lines),),
        end=((name, wanted),),
        words=(old, new),
    )


def _apart(drawn: list[str]) -> list[str]:
    """Those of `drawn` that neither hold the first two nor stand in them, since the editor finds parts of words."""
    old, *others = drawn
    return [old, *(word for word in others if old not in word and word not in old)]


FAMILY = of_files(
    NAME,
    ("text_editor",),
    goal,
    opened=lambda made: [f"{DOCUMENTS}/{made.target}"],
    decide=editor_find_oracle.decide,
    templates=TEMPLATES,
)
