"""Calc's oracles solve their tasks on real desktops by either route; a number in place of a formula does not."""

from __future__ import annotations

import shutil

import pytest

from actors.desktop.pool.pool import DesktopPool
from apis.actions.gui import line
from apis.catalogue import call
from apis.tasks import registry as tasks
from apis.tasks.families.calc_tables import WorkbookGoal
from tests.apis.plays import Form, oracle_finds_back, oracle_solves, told
from tests.proofs import proofs

pytestmark = [
    pytest.mark.desktop,
    pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed"),
]
MOST_CHARS = 2500  # of a compact prompt


@pytest.mark.parametrize(
    ("family", "route", "form"),
    [
        ("calc_sum", "api", "compact"),
        *proofs(
            ("calc_column", "gui", "compact"),
            ("calc_cell", "gui", "compact"),
            ("calc_sort", "gui", "published"),
            ("calc_sheet", "gui", "compact"),
            ("sheet_from_note", "gui", "published"),
            ("sheet_from_note", "api", "compact"),
        ),
    ],
)
async def test_oracles_solve_their_tasks_by_either_route(
    family: str, route: str, form: Form, pool: DesktopPool
) -> None:
    await oracle_solves(pool, f"{family}/held-out/3", form=form, route=route, most_chars=MOST_CHARS)


@pytest.mark.proof
async def test_a_number_where_a_formula_is_wanted_fails(pool: DesktopPool) -> None:
    goal = tasks.goal("calc_sum/train/1")
    assert isinstance(goal, WorkbookGoal)
    typed = call("CalcTools", "set_cell_value", cell=goal.writes[0].cell, value=goal.wanted)
    played = await told(pool, "calc_sum/train/1", line(typed), "CalcTools.save()", "Agent.exit(success=True)")
    assert not played.success
    assert "table:formula' is wanted" in played.detail, played.detail


@pytest.mark.proof
async def test_it_finds_back_after_stray_steps(pool: DesktopPool) -> None:
    await oracle_finds_back(pool, "calc_lookup/train/3", route="gui")
