"""What families of text documents have in common: a few short paragraphs, and what shall become of them.

Invariant: a task is judged on every paragraph of its document, words and looks, so whoever changes anything else has
failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from apis.documents.docx import MIME, make_docx
from apis.tasks.data_url import data_url
from apis.tasks.families.calc import common as sheets
from apis.tasks.family import DOCUMENTS, ITS_END, Family, Files, Templates, all_of, in_osworld_form, setup, words_of
from apis.tasks.goal import Goal
from apis.tasks.osworld import Download, DownloadParameters, Source, Step, Task
from apis.tasks.verify.verify import FileView, Paper, PaperParagraph, Span
from apis.tasks.view import Decide
from apis.tasks.words import words

WRITER = "libreoffice_writer"


@dataclass(frozen=True)
class Line:
    """A paragraph with text; `looks` and `layout` are marks of `apis.tasks.verify.verify.PaperParagraph`."""

    text: str
    looks: tuple[str, ...] = ()
    layout: tuple[str, ...] = ()


@dataclass(frozen=True)
class PaperGoal(Goal):
    """What an instance asks for; `target` is the document's file."""

    start: tuple[str, ...] = ()  # its paragraphs, plain; "" is an empty one
    finish: tuple[Line, ...] = ()  # those with text in the end
    books: tuple[sheets.SheetGoal, ...] = ()  # workbooks beside it, judged by their own goals

    @property
    def before(self) -> list[str]:
        """The paragraphs with text at the start."""
        return [text for text in self.start if text]

    @property
    def after(self) -> list[str]:
        """Those in the end."""
        return [line.text for line in self.finish]


def plain(texts: Sequence[str]) -> tuple[Line, ...]:
    """Paragraphs that look like any other."""
    return tuple(Line(text) for text in texts)


def drawn(random: Random, split: str, sizes: Sequence[int], others: int = 0) -> tuple[list[str], list[str]]:
    """Paragraphs of so many words each, and other words; none of all these words is a part of another."""
    while True:
        found = words(random, split, sum(sizes) + others)
        if not any(one in other for one in found for other in found if one != other):
            break
    left = iter(found)
    return [" ".join(next(left) for _ in range(size)) for size in sizes], list(left)


def of_papers(
    name: str,
    goal: Callable[[Random, str], PaperGoal],
    *,
    routes: Mapping[str, Decide],
    templates: Templates,
    trained: bool = True,
    apps: tuple[str, ...] = (WRITER,),
    opened: Callable[[PaperGoal], Sequence[str]] = lambda made: (made.target,),
) -> Family:
    """A family that is done when the document says and looks what its goal wants; of `opened`, the last is in front."""

    def task(task_id: str, made: PaperGoal) -> Task:
        config: list[Step] = [_paper_step(made), *map(sheets.workbook_step, made.books)]
        config += setup(made, *(f"{DOCUMENTS}/{path}" for path in opened(made)))
        kept = [("file_text_is", path, _rule(text)) for path, text in made.files]
        kept += map(sheets.workbook_check, made.books)
        expected = [{"text": line.text, "looks": [*line.looks], "layout": [*line.layout]} for line in made.finish]
        evaluator = all_of(("paper_is", made.target, _rule(expected)), *kept)
        return in_osworld_form(task_id, made, config, evaluator, apps)

    return Family(name, WRITER, apps, goal, task, _solved, routes, templates, trained, values_of, may=ITS_END)


def paper_goal(goal: Goal) -> PaperGoal:
    """The goal. Raises TypeError for one of another kind."""
    if not isinstance(goal, PaperGoal):
        raise TypeError(f"{goal.family} is no family of text documents")
    return goal


def values_of(made: Goal) -> set[str]:
    """The words and numbers that an instance is made of; capitals are made of small letters."""
    goal = paper_goal(made)
    own = {word.lower() for text in (*goal.before, *goal.after) for word in text.split()}
    return words_of(goal).union(own, *map(sheets.values_of, goal.books))


def _paper_step(made: PaperGoal) -> Download:
    source = Source(url=data_url(make_docx(made.start), MIME), path=f"{DOCUMENTS}/{made.target}")
    return Download(parameters=DownloadParameters(files=[source]))


def _solved(made: Goal) -> Files:
    goal = paper_goal(made)
    paragraphs = tuple(PaperParagraph((Span(line.text, line.looks),), line.layout) for line in goal.finish)
    files = {f"Documents/{name}": FileView("file", text.encode()) for name, text in goal.files}
    files[f"Documents/{goal.target}"] = FileView("paper", paper=Paper(paragraphs))
    for book in goal.books:
        files.update(sheets.solved(book))
    return files


def _rule(expected: object) -> dict[str, object]:
    return {"type": "rule", "rules": {"expected": expected}}
