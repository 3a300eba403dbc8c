"""Every function of every application on the real application: the cases of `apis.check`, once each."""

from __future__ import annotations

import pytest

from actors.cluster.apicheck.command import missing
from actors.cluster.apicheck.desk import opened
from actors.cluster.apicheck.verdicts import functions
from actors.cluster.bench.stage import provider
from apis.check import TABLES
from apis.check.run import run


@pytest.mark.timeout(300)  # VS Code loads its window anew for other folders, a few times
@pytest.mark.parametrize("app", TABLES)
async def test_every_function_does_what_it_says(app: str, state_dir: str) -> None:
    lacking = missing(app)
    if lacking:
        pytest.skip(lacking)
    async with provider(state_dir) as made, opened(made, TABLES[app]) as desk:
        outcomes = await run(TABLES[app], desk, 0, lambda _: None)
    assert {outcome.case.function: outcome.problem for outcome in outcomes if outcome.problem} == {}


@pytest.mark.parametrize(
    ("app", "function"),
    [("libreoffice_impress", "save_as"), ("libreoffice_writer", "save"), ("google_chrome", "open_bookmarks")],
)
async def test_a_function_that_looks_at_other_work_can_be_checked_alone(
    app: str, function: str, state_dir: str
) -> None:
    lacking = missing(app)
    if lacking:
        pytest.skip(lacking)
    async with provider(state_dir) as made, opened(made, TABLES[app]) as desk:
        outcomes = await run(TABLES[app], desk, 0, lambda _: None, [function])
    assert [(outcome.case.function, outcome.problem) for outcome in outcomes] == [(function, "")]


@pytest.mark.parametrize("app", TABLES)
def test_every_declared_function_has_one_case(app: str) -> None:
    cases = [case.function for case in TABLES[app].cases]
    assert sorted(cases) == sorted(functions(app))
    assert all(case.refusal for case in TABLES[app].cases)
