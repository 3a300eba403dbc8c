"""Tasks on the terminal, never trained on: add a line at the end of a file by a command.

Invariant: a task is solved only if the line stands last in that file and nothing else in Documents has changed.
"""

from __future__ import annotations

from random import Random

from apis.tasks.families.terminal.shell import PROMPT, at, finish, go_in
from apis.tasks.family import TERMINAL, of_files
from apis.tasks.goal import Goal
from apis.tasks.view import Move, View
from apis.tasks.words import HELD_OUT, TRAIN, text_file, words

TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "append": {
        TRAIN: (),
        HELD_OUT: (
            "Append '{line}' to {file} in Documents with a command",
            "In the terminal, add the line '{line}' to the file {file} in Documents",
            "Use the shell to put '{line}' below the text of {file} in Documents",
        ),
    }
}


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for."""
    count = random.choice((2, 3))
    drawn = words(random, split, 2 * count + 2)
    names = [text_file(random, stem) for stem in drawn[:count]]
    files = dict(zip(names, (f"{text}\n" for text in drawn[count : 2 * count]), strict=True))
    target, line = random.choice(names), " ".join(drawn[-2:][: random.choice((1, 2))])
    return Goal(
        kind="append",
        instruction=random.choice(TEMPLATES["append"][split]).format(file=target, line=line),
        target=target,
        wanted=line,
        files=tuple(files.items()),
        end=tuple((files | {target: f"{files[target]}{line}\n"}).items()),
    )


def decide(view: View) -> Move:
    """The next move of its oracle."""
    first = go_in(view)
    command = f"echo {view.goal.wanted} >> {at(view, view.goal.target)}"
    return finish(view, f"{PROMPT} -> append to {view.goal.target}", command, first)


FAMILY = of_files("terminal_append", ("terminal",), TEMPLATES, goal, opened=lambda _: [TERMINAL], decide=decide)
