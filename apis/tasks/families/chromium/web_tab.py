"""Tasks on Chromium: bookmark the page with a given title, which lies in another tab than the one that shows.

Invariant: a task is solved only if the profile holds that bookmark and no other. A bookmark of the page that shows
fails it. The two splits share no wording and, since words are split by their hash, no name and no title.
"""

from __future__ import annotations

from random import Random

from apis.tasks.families.chromium import web_bookmark
from apis.tasks.families.chromium.web_bookmark import asked, of_bookmarks, one_mark, pages
from apis.tasks.goal import Goal
from apis.tasks.words import HELD_OUT, TRAIN

TEMPLATES = {
    "tab": {
        TRAIN: (
            "Bookmark the page '{title}', it is in another tab",
            "One of the tabs is '{title}', bookmark its page",
            "Go to the tab '{title}' and bookmark it",
            "Of the tabs in the browser, save '{title}' as a bookmark",
            "Show the tab '{title}', then add a bookmark for it",
            "Put the page of the tab '{title}' into the bookmarks",
        ),
        HELD_OUT: (
            "Make a bookmark of the page in the tab '{title}'",
            "The tab '{title}' should be in the bookmarks",
            "Add the page '{title}' from another tab to the bookmarks",
        ),
    }
}


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for."""
    made = pages(random, split, random.choice((2, 3, 3)))
    page = random.choice(made[1:])
    return asked("web_tab", "tab", random.choice(TEMPLATES["tab"][split]), page, made)


FAMILY = of_bookmarks(
    "web_tab", TEMPLATES, goal, {"gui": web_bookmark.by_gui, "mixed": web_bookmark.by_tools}, marks=one_mark
)
