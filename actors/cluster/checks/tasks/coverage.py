"""`tasks coverage`: what the files of a task set need, counted.

Invariant: the counts come from the verdicts that `eval` and `run` go by.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence

from actors.cluster import output
from actors.cluster.checks.tasks import static as form
from actors.cluster.checks.tasks.static import FileRow
from actors.cluster.config import tasksets
from apis.tasksets import published

FIXTURES = "fixtures"  # all of them count as one piece: they are fetched together
PIECES_SHOWN = 40
REFUSED = "refused"
KINDS = (
    "solvable", "solvable, judged by the published package", "not solvable without a network",
    "not solvable without a network, judged by the published package", "needs_file", "needs_app", "needs_network",
    "needs_judge", "unsound", REFUSED,
)  # fmt: skip
COLUMNS = {"today": False, "with_fixtures": True}
NAME_SHOWN = 70  # characters


def kind(row: FileRow, *, fetched: bool) -> str:
    """Which of `KINDS` a file is, now or once its fixtures are `fetched`."""
    if row.needs and not (fetched and all(need.startswith("fixture ") for need in row.needs)):
        return REFUSED if row.verdict == "unsupported" else row.verdict
    left = ", judged by the published package" if row.judge == "published" else ""
    return f"not solvable without a network{left}" if row.offline else f"solvable{left}"


def piece(need: str) -> str:
    """What has to come to be here for `need`."""
    return FIXTURES if need.startswith("fixture ") else "network" if need.startswith("network ") else need


def cumulative(tasks: Sequence[frozenset[str]]) -> list[tuple[str, int]]:
    """Pieces, the most useful first, each with the number of tasks that lack nothing once it is here too.

    The next piece is the one that completes most tasks; where none completes any, the one that most tasks need.
    """
    left, found = [set(pieces) for pieces in tasks if pieces], []
    done = len(tasks) - len(left)
    while left:
        alone = Counter(next(iter(pieces)) for pieces in left if len(pieces) == 1)
        chosen = max((alone or Counter(one for pieces in left for one in pieces)).items(), key=lambda item: item[1])[0]
        left = [pieces - {chosen} for pieces in left]
        done += sum(not pieces for pieces in left)
        left = [pieces for pieces in left if pieces]
        found.append((chosen, done))
    return found


def show(args: argparse.Namespace) -> int:
    """Print the table; the exit status."""
    rows = form.check_files(tasksets.files_at(args.suite), lambda _: None, published=published.is_here())
    tasks = [frozenset(piece(need) for need in row.needs) for row in rows]
    verdicts = Counter(row.verdict for row in rows)
    kinds = {name: Counter(kind(row, fetched=fetched) for row in rows) for name, fetched in COLUMNS.items()}
    needed = Counter(one for pieces in tasks for one in pieces)
    order = cumulative(tasks)
    if args.json:
        steps = [{"piece": name, "tasks": needed[name], "cumulative": done} for name, done in order]
        output.document({"tasks": len(rows), "verdicts": verdicts, **kinds, "pieces": steps})
        return 0
    shares = [(name, *(counts[name] for counts in kinds.values())) for name in KINDS]
    output.table(("", *(name.upper().replace("_", " ") for name in kinds)), [*shares, ("all", len(rows), len(rows))])
    output.line()
    shown = [(name[:NAME_SHOWN], needed[name], done) for name, done in order[:PIECES_SHOWN]]
    output.table(("LACKING PIECE", "NEEDED BY", "PLAYABLE WITH IT AND THOSE ABOVE"), shown)
    if len(order) > PIECES_SHOWN:
        output.line(f"and {len(order) - PIECES_SHOWN} more pieces (--json lists all)")
    return 0
