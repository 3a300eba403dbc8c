"""Functions of applications on the real ones: every value that a model may choose, and the cases of `apis/apps/check`.

The cases of the applications that are not SHORT are left to `computerrl apis check`, which `make test-change` runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from actors.cluster.checks.desk import RealDesk, opened, provider
from actors.cluster.checks.functions import functions, missing
from actors.desktop.config import SandboxConfig
from apis.apps.check.case import tables
from apis.apps.check.run import run
from apis.apps.check.steps import REFUSED, Steps
from apis.catalogue import declared
from tests.proofs import proofs

TABLES = tables()
SHORT = ("vlc",)
CHOOSING = [
    app for app, table in TABLES.items()
    if any(param.kind == "choice" for name in functions(app) for param in declared(table.owner, name).params)
]  # fmt: skip


async def choices(desk: RealDesk, app: str) -> AsyncIterator[tuple[str, str, str]]:
    """Each value that a declaration lets a model choose from, what the call says, and the refusal it should be or "".

    The guest has tables of its own of what such a value means: one that lacks it fails here.
    """
    steps = Steps(TABLES[app], desk)
    for case in TABLES[app].cases:
        for param in (each for each in declared(TABLES[app].owner, case.function).params if each.kind == "choice"):
            for n, value in enumerate(param.limits):
                await steps.run(case.each)
                given = {**case.repeated(100 + n), **case.chosen.get(value, {}), param.name: value}
                wanted = f"{REFUSED}{case.never[value]}" if value in case.never else ""
                yield f"{case.function}({param.name}={value!r})", await desk.tool(case.function, **given), wanted


def _right(told: str, wanted: str) -> bool:
    return told.startswith(wanted) if wanted else not told.startswith(REFUSED) and "Error" not in told


@pytest.mark.parametrize("app", SHORT)
async def test_every_function_does_what_it_says(app: str, state_dir: str) -> None:
    lacking = missing(app)
    if lacking:
        pytest.skip(lacking)
    async with provider(SandboxConfig(state_dir=state_dir)) as made, opened(made, TABLES[app]) as desk:
        outcomes = await run(TABLES[app], desk, 0, lambda _: None)
    assert {outcome.case.function for outcome in outcomes} == {case.function for case in TABLES[app].cases}
    assert {outcome.case.function: outcome.problem for outcome in outcomes if outcome.problem} == {}


@pytest.mark.timeout(300)  # VS Code loads its window anew for other folders, a few times
@pytest.mark.parametrize("app", proofs(*CHOOSING))
async def test_every_value_that_a_model_may_choose_is_known(app: str, state_dir: str) -> None:
    lacking = missing(app)
    if lacking:
        pytest.skip(lacking)
    async with provider(SandboxConfig(state_dir=state_dir)) as made, opened(made, TABLES[app]) as desk:
        said = [each async for each in choices(desk, app)]
    assert said
    assert [(call, told) for call, told, wanted in said if not _right(told, wanted)] == []


@pytest.mark.parametrize(
    ("app", "function"),
    [
        ("vlc", "toggle_fullscreen"),
        *proofs(
            ("libreoffice_writer", "save"), ("google_chrome", "open_bookmarks"), ("libreoffice_impress", "save_as")
        ),
    ],
)
async def test_a_function_that_looks_at_other_work_can_be_checked_alone(
    app: str, function: str, state_dir: str
) -> None:
    lacking = missing(app)
    if lacking:
        pytest.skip(lacking)
    async with provider(SandboxConfig(state_dir=state_dir)) as made, opened(made, TABLES[app]) as desk:
        outcomes = await run(TABLES[app], desk, 0, lambda _: None, [function])
    assert [(outcome.case.function, outcome.problem) for outcome in outcomes] == [(function, "")]


@pytest.mark.parametrize("app", TABLES)
def test_every_declared_function_has_one_case(app: str) -> None:
    cases = [case.function for case in TABLES[app].cases]
    assert sorted(cases) == sorted(functions(app))
    assert all(case.refusal for case in TABLES[app].cases)
