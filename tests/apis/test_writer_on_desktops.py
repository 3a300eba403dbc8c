"""Writer's oracles solve their tasks on real desktops by each route; a claim without saving does not."""

from __future__ import annotations

import shutil

import pytest

from actors.desktop.pool.pool import DesktopPool
from apis.actions.gui import line
from apis.catalogue import call
from apis.tasks import registry as tasks
from tests.apis.plays import Form, oracle_solves, told
from tests.proofs import proofs

pytestmark = pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")
MOST_CHARS = 2500  # of a compact prompt


@pytest.mark.parametrize(
    ("family", "route", "form"),
    [
        ("doc_from_note", "mixed", "compact"),
        *proofs(
            ("writer_case", "api", "published"),
            ("writer_text", "gui", "compact"),
            ("writer_look", "gui", "published"),
            ("writer_look", "api", "compact"),
            ("doc_from_sheet", "gui", "published"),
            ("doc_from_sheet", "api", "compact"),
        ),
    ],
)
async def test_oracles_solve_their_tasks_by_each_route(family: str, route: str, form: Form, pool: DesktopPool) -> None:
    await oracle_solves(pool, f"{family}/held-out/3", form=form, route=route, most_chars=MOST_CHARS)


@pytest.mark.proof
async def test_a_change_that_was_not_saved_fails(pool: DesktopPool) -> None:
    seed = next(n for n in range(99) if tasks.goal(f"writer_text/train/{n}").kind == "replace")
    old, new = tasks.goal(f"writer_text/train/{seed}").words
    replaced = call("WriterTools", "find_and_replace", pattern=old, replacement=new)
    played = await told(pool, f"writer_text/train/{seed}", line(replaced), "Agent.exit(success=True)")
    assert not played.success
    assert played.detail.endswith("says something else"), played.detail
