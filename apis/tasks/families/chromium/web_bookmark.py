"""Tasks on Chromium: bookmark the page that is open.

Invariant: a task is solved only if the profile holds one bookmark, with the page's title. The two splits share no
wording and, since words are split by their hash, no name and no title.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from apis.tasks.families.chromium import web, web_bookmark_oracle
from apis.tasks.family import ITS_END, Family, Files, Templates, in_osworld_form
from apis.tasks.goal import Goal
from apis.tasks.osworld import Evaluator, Task
from apis.tasks.verify.verify import GUEST_HOME
from apis.tasks.view import Decide
from apis.tasks.words import HELD_OUT, TRAIN, words

NAME = "web_bookmark"
TEMPLATES = {
    "open": {
        TRAIN: (
            "Bookmark the open page '{title}'",
            "Add a bookmark for the page '{title}' that is open",
            "The page '{title}' is open in the browser, bookmark it",
            "Save the open page '{title}' as a bookmark",
            "Keep the page '{title}' that shows in Chromium as a bookmark",
            "Put the open page '{title}' into the bookmarks",
        ),
        HELD_OUT: (
            "Add the open page '{title}' to the bookmarks",
            "Make a bookmark of the page '{title}' that shows",
            "The page '{title}' that is open should be in the bookmarks",
        ),
    }
}


def titles(random: Random, split: str, count: int) -> list[str]:
    """Different titles of one or two words."""
    drawn = words(random, split, 2 * count)
    return [" ".join(drawn[2 * at : 2 * at + random.choice((1, 2))]).capitalize() for at in range(count)]


Page = tuple[str, str, str]  # title, file name and content


def pages(random: Random, split: str, count: int) -> list[Page]:
    """`count` pages with different titles."""
    names = words(random, split, count)
    called = titles(random, split, count)
    return [(title, f"{name}.html", web.heading(title)) for title, name in zip(called, names, strict=True)]


def asked(family: str, kind: str, template: str, page: Page, shown: Sequence[Page]) -> Goal:
    """To bookmark `page`, one of those that are `shown`."""
    title, name, _ = page
    return Goal(
        family=family,
        kind=kind,
        instruction=template.format(title=title),
        target=name,
        wanted=title,
        files=tuple((file, content) for _, file, content in shown),
        words=tuple(title for title, _, _ in shown),
    )


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for."""
    made = pages(random, split, random.choice((1, 1, 2, 3)))
    return asked(NAME, "open", random.choice(TEMPLATES["open"][split]), made[0], made)


def of_bookmarks(
    name: str,
    goal: Callable[[Random, str], Goal],
    *,
    marks: Callable[[Goal], list[web.Mark]],
    routes: Mapping[str, Decide],
    templates: Templates,
    trained: bool = True,
) -> Family:
    """A family that is done when the profile's bookmarks are `marks`; of the goal's files the first one shows."""

    def task(task_id: str, made: Goal) -> Task:
        expected = {"type": "rule", "rules": {"expected": [list(mark) for mark in marks(made)]}}
        evaluator = Evaluator(func="bookmarks_are", result=web.bookmarks_getter(), expected=expected)
        return in_osworld_form(task_id, made, web.show(made.files, made.words[0]), evaluator, (web.CHROME,))

    def solved(made: Goal) -> Files:
        return web.written(marks(made), GUEST_HOME)

    def values(made: Goal) -> set[str]:
        names = {name.removesuffix(".html") for name, _ in made.files}
        return names | {word for text in (*made.words, made.wanted) for word in text.lower().split()} - {""}

    return Family(
        name,
        web.CHROME,
        (web.CHROME,),
        goal,
        task,
        solved,
        routes,
        templates,
        trained,
        values,
        leaves=web.leaves,
        may=ITS_END,
    )


def one_mark(made: Goal) -> list[web.Mark]:
    """The page that the goal names, in no folder."""
    return [("", made.wanted, f"Documents/{made.target}")]


FAMILY = of_bookmarks(
    NAME,
    goal,
    marks=one_mark,
    routes={"gui": web_bookmark_oracle.by_gui, "api": web_bookmark_oracle.by_tools},
    templates=TEMPLATES,
)
