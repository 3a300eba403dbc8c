"""Tasks on the terminal: find out by one command what another needs to be told.

Invariant: what has to be found out stands in no instruction. The oracle acts only on what the terminal shows.
"""

from __future__ import annotations

from random import Random

from apis.actions.gui import Exit, Wait
from apis.tasks.families.terminal.shell import PROMPT, at, enter, entered, go_in, output, ran, screen
from apis.tasks.family import TERMINAL, of_files
from apis.tasks.goal import Goal
from apis.tasks.view import Move, View
from apis.tasks.words import HELD_OUT, TRAIN, text_file, words

TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "says": {
        TRAIN: (
            "Read {name} in Documents and make a folder there with the name it says",
            "The file {name} in Documents says a word, make a folder with that name beside it",
            "Look into {name} in Documents, it names a folder to make there",
            "Show the file {name} in Documents and make the folder that it names there",
            "The file {name} in Documents holds the name of a folder, make that folder in Documents",
            "Find out what {name} in Documents says and make a folder of that name there",
            "Make a folder in Documents, its name stands in the file {name} there",
            "What {name} in Documents says is the name of a folder to make beside it",
            "Print {name} in Documents, then make a folder there called what it says",
            "A folder is missing in Documents, the file {name} there says its name",
            "Use cat on {name} in Documents and make the folder with that name there",
        ),
        HELD_OUT: (
            "Look into {name} in Documents and make a folder there with the name it says",
            "Read the file {name} in Documents, it names a folder to make beside it",
        ),
    },
    "holds": {
        TRAIN: (
            "Delete the file in Documents that says '{name}'",
            "Find out which file in Documents says '{name}' and remove it",
            "One file in Documents says '{name}', delete that one",
            "Search Documents for '{name}' and remove the file that says it",
            "Delete from Documents the file whose text is '{name}'",
            "Look which file in Documents holds '{name}' and delete it",
            "Only the file in Documents with the text '{name}' should go, remove it",
            "Find the file with '{name}' in it in Documents and delete it",
            "Somewhere in Documents a file says '{name}', remove that file",
            "Use grep to find the file in Documents that says '{name}', then remove it",
            "The file in Documents whose line is '{name}' is not needed, delete it",
        ),
        HELD_OUT: (
            "Search Documents for the file that says '{name}' and delete it",
            "One of the files in Documents says '{name}', remove it",
        ),
    },
    "lists": {
        TRAIN: (
            "List the folder {name} in Documents, make a folder in Documents named like the file in it",
            "See what lies in {name} in Documents and make a folder of that name in Documents",
            "The folder {name} in Documents has one file, make a folder in Documents with its name",
            "Make a folder in Documents named like the only file in its folder {name}",
            "Documents should get a folder with the name of the file that lies in its folder {name}",
            "Find out what the only file in {name} in Documents is called, make a folder in Documents of that name",
            "Look into the folder {name} in Documents, make a folder in Documents with the name of the file in it",
            "The file inside {name} in Documents has a name, make a folder in Documents called like it",
            "Use ls on {name} in Documents and make a folder in Documents with the name of the file",
            "What is the file in the folder {name} called? Make a folder of that name in Documents",
            "In the folder {name} of Documents lies one file, give its name to a new folder in Documents",
        ),
        HELD_OUT: (
            "See which file lies in {name} in Documents, make a folder in Documents with its name",
            "List {name} in Documents and make a folder in Documents named like the only file there",
        ),
    },
}


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for."""
    kind = random.choice(sorted(TEMPLATES))
    count = random.choice((2, 3))
    found, folder, *drawn = words(random, split, 2 * count + 2)
    names = [text_file(random, stem) for stem in drawn[:count]]
    files = dict(zip(names, (f"{text}\n" for text in drawn[count:]), strict=True))
    name = random.choice(names)
    end: dict[str, str | None] = dict(files)
    match kind:
        case "says":
            files[name] = end[name] = f"{found}\n"
            end[found] = None
        case "holds":
            found, name = _only(files, random)
            del end[found]
        case "lists":
            del files[name], end[name]
            name = folder
            files[f"{folder}/{found}"] = end[f"{folder}/{found}"] = f"{drawn[-1]}\n"
            end[found] = None
    return Goal(
        kind=kind,
        instruction=random.choice(TEMPLATES[kind][split]).format(name=name),
        target=name,
        wanted=found,
        files=tuple(files.items()),
        end=tuple(end.items()),
    )


def _only(files: dict[str, str], random: Random) -> tuple[str, str]:
    """One of `files` whose text stands in no other, and that text."""
    alone = [name for name, text in files.items() if sum(text.strip() in other for other in files.values()) == 1]
    name = random.choice(alone)
    return name, files[name].strip()


def decide(view: View) -> Move:
    """The next move."""
    first = go_in(view)
    if first:
        return first
    look = _look(view)
    shown = output(view, look)
    if shown is None:
        if view.history and entered(view, look) and screen(view)[-1:] != [PROMPT]:
            return "wait for the shell", Wait()
        return enter(view, f"{PROMPT} -> look for {view.goal.target}", look)
    if not shown:
        return "nothing left -> done", Exit(success=True)
    found = shown[0].strip()
    act = f"rm {found}" if view.goal.kind == "holds" else f"mkdir {at(view, found)}"
    if ran(view, act):
        return "done", Exit(success=True)
    return enter(view, f"terminal {found} -> {act.split(' ', maxsplit=1)[0]}", act)


def _look(view: View) -> str:
    match view.goal.kind:
        case "says":
            return f"cat {at(view, view.goal.target)}"
        case "lists":
            return f"ls {at(view, view.goal.target)}"
        case _:
            return f"grep -l {view.goal.target} {at(view, '*')}"


FAMILY = of_files("terminal_read", ("terminal",), TEMPLATES, goal, opened=lambda _: [TERMINAL], decide=decide)
