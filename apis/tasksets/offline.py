"""Which tasks no policy can solve on a desktop without a network, by what their files say.

Invariant: pure, and by the words and addresses of a file alone: a task that is named may still be solvable by luck, one
that is not named may still need what its words don't say.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from apis.tasks.osworld import ChromeOpenTabs, History, Task
from apis.tasksets import getters

OWN = ("chrome://", "about:", "file://", "data:")  # what a browser shows without a network
NEAR = ("localhost", "127.0.0.1")
URL = re.compile(r"https?://[^\s\"'<>)]+")
SITE = re.compile(
    r"\b(?:from|through|via|visit) (?:the )?((?:[a-z0-9-]+\.)+(?:com|org|net|io|edu|gov))\b", re.IGNORECASE
)
BRINGS = re.compile(r"\b(?:clone|install)\b", re.IGNORECASE)
# What is here already may be installed: a file, or a folder by its name or path.
LOCAL = re.compile(
    r"[~/][\w.-]*/|\.(?:deb|oxt|vsix|whl|xpi|zip)\b|\b(?:desktop|downloads|directory|folder|local)\b", re.IGNORECASE
)
# Of a page that can't be loaded the browser still knows the address: these ask for no more.
ADDRESSES = {"is_expected_bookmarks", "is_expected_search_query", "is_expected_tabs"}
LEFT_BY_PAGES = {"cookie_data", "history"}


def _far(url: str) -> bool:
    if url.startswith(OWN):
        return False
    try:
        parts = urlsplit(url if "://" in url else f"https://{url}")
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.hostname not in NEAR


def _opened(task: Task) -> list[str]:
    """Far pages that the set-up opens."""
    steps = [step for step in task.config if isinstance(step, ChromeOpenTabs)]
    return [url for step in steps for url in step.parameters.urls_to_open if _far(url)]


def reason(task: Task) -> str:
    """Why no policy can solve `task` without a network; "" where nothing in its file says so."""
    if not task.feasible:
        return ""
    told = [url for url in URL.findall(task.instruction) if _far(url)] + SITE.findall(task.instruction)
    if told:
        return f"the instruction names {told[0].rstrip('.,')}"
    if (word := BRINGS.search(task.instruction)) and not LOCAL.search(task.instruction):
        return f"the instruction asks to {word.group().lower()} what is not on the desktop"
    pages = _opened(task)
    if pages and not set(task.evaluator.functions) <= ADDRESSES:
        return f"it starts with {pages[0]}"
    for name, result, expected, _ in task.evaluator.rows():
        rule = expected.get("rules")
        url = str(rule.get("url", "")) if isinstance(rule, dict) else ""
        if name == "is_vlc_playing" and _far(url):
            return f"it plays {url}"
        if name not in ADDRESSES and result.get("type") in getters.LIVE and not url.startswith(OWN):
            return "it is judged by the page in front"
    return ""


def empty_at_start(task: Task) -> bool:
    """Whether it asks for an end to what pages of its set-up leave: without a network there is nothing of that."""
    kinds = {result.get("type") for _, result, _, _ in task.evaluator.rows()}
    remembered = any(isinstance(step, History) for step in task.config)
    return bool(kinds & LEFT_BY_PAGES) and bool(_opened(task)) and not remembered
