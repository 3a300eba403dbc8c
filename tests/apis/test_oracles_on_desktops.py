"""Oracles solve their tasks on real desktops, in both forms and within six steps; what does not solve them fails."""

from typing import Any

import pytest

from actors.cluster.checks.functions import missing
from actors.desktop.answers import Answer, Answerer, Prompt
from actors.desktop.player import Player, demonstrated
from actors.desktop.pool.pool import DesktopPool
from actors.replay.messages import Reservation
from apis.observation import Observation
from apis.prompts.text import Turn
from apis.tasks import registry as tasks
from policy.base import MODEL
from policy.tokenizer import Tokenizer
from tests.apis.plays import Form, Said, oracle_finds_back, oracle_solves
from tests.proofs import proofs

LIGHT = sorted(
    name for name, family in tasks.FAMILIES.items() if {*family.apps} <= {"text_editor", "file_manager", "terminal"}
)
FORMS: tuple[Form, Form] = ("compact", "published")
CHARS = 2800  # of a compact prompt, at the most


def lacking(family: str) -> pytest.MarkDecorator:
    """Skips what needs an application that is not here."""
    why = next(filter(None, map(missing, tasks.FAMILIES[family].apps)), "")
    return pytest.mark.skipif(bool(why), reason=why)


def rows(*plays: tuple[str, str, Form], marks: tuple[pytest.MarkDecorator, ...] = ()) -> list[Any]:
    """Family, route and form of each play."""
    return [pytest.param(*play, marks=[lacking(play[0]), *marks]) for play in plays]


@pytest.mark.parametrize("family", [*LIGHT[::4], *proofs(*(name for n, name in enumerate(LIGHT) if n % 4))])
async def test_oracles_solve_their_tasks(family: str, pool: DesktopPool) -> None:
    form = FORMS[LIGHT.index(family) % 2]
    await oracle_solves(pool, f"{family}/held-out/2", form=form, seed=5)


@pytest.mark.parametrize(
    ("family", "route", "form"),
    [
        *rows(
            ("calc_sum", "api", "compact"),
            ("doc_from_note", "mixed", "compact"),
            ("vlc_playlist", "mixed", "published"),
        ),
        *rows(
            ("calc_column", "gui", "compact"),
            ("calc_cell", "gui", "compact"),
            ("calc_sort", "gui", "published"),
            ("calc_sheet", "gui", "compact"),
            ("sheet_from_note", "gui", "published"),
            ("sheet_from_note", "api", "compact"),
            ("writer_case", "api", "published"),
            ("writer_text", "gui", "compact"),
            ("writer_look", "gui", "published"),
            ("writer_look", "api", "compact"),
            ("doc_from_sheet", "gui", "published"),
            ("doc_from_sheet", "api", "compact"),
            ("vlc_setting", "api", "compact"),
            ("web_tab", "gui", "published"),
            ("web_bookmark", "api", "compact"),
            ("web_note", "gui", "compact"),
            ("web_all", "gui", "compact"),
            ("vlc_playlist", "gui", "compact"),
            ("vlc_setting", "gui", "compact"),
            ("vlc_save", "gui", "compact"),
            marks=(pytest.mark.proof,),
        ),
    ],
)
async def test_oracles_of_applications_solve_their_tasks_by_every_route(
    family: str, route: str, form: Form, pool: DesktopPool
) -> None:
    await oracle_solves(pool, f"{family}/held-out/3", form=form, route=route, most_chars=CHARS)


@lacking("slides_order")
@pytest.mark.parametrize(
    ("family", "kind", "route"),
    [
        ("slides_order", "end", "gui"),
        *proofs(("slides_copy", "copy", "api"), ("slides_text", "clear", "gui"), ("slides_order", "delete", "mixed")),
    ],
)
async def test_oracles_of_slides_solve_each_kind(family: str, kind: str, route: str, pool: DesktopPool) -> None:
    ids = (f"{family}/held-out/{number}" for number in range(200))
    first = next(task_id for task_id in ids if tasks.goal(task_id).kind == kind)
    await oracle_solves(pool, first, route=route, most_steps=7, most_chars=CHARS)


@pytest.mark.proof
@pytest.mark.parametrize(
    ("family", "route"),
    [
        ("editor_find", ""),
        ("files_move", ""),
        ("note_to_terminal", ""),
        pytest.param("calc_lookup", "gui", marks=lacking("calc_lookup")),
        pytest.param("vlc_playlist", "gui", marks=lacking("vlc_playlist")),
    ],
)
async def test_oracles_find_back_after_stray_steps(family: str, route: str, pool: DesktopPool) -> None:
    await oracle_finds_back(pool, f"{family}/train/3", route=route)


@pytest.mark.parametrize(
    ("family", "before"),
    [
        ("terminal_read", ("Agent.type(text='echo lost')", "Agent.open_app(app_name='files')")),
        *proofs(
            ("file_manager", ("Agent.hotkey(keys=['alt', 'up'])", "Agent.open_app(app_name='gedit')")),
            ("files_move", ("Agent.hotkey(keys=['alt', 'up'])", "Agent.hotkey(keys=['alt', 'up'])")),
        ),
    ],
)
async def test_an_oracle_takes_over_where_another_went_astray(
    family: str, before: tuple[str, ...], pool: DesktopPool
) -> None:
    def answers(work: Reservation) -> Answerer:
        return Handed(Said(*before), len(before), demonstrated(Tokenizer.load(MODEL))(work))

    played = await Player(pool).play(f"{family}/train/8", answers, seed=7)
    assert played.success, (played.detail, [(step.response, step.refusal) for step in played.steps])


class Handed:
    """Asks one for the first steps and another for the rest."""

    def __init__(self, first: Answerer, steps: int, rest: Answerer) -> None:
        self.first = first
        self.steps = steps
        self.rest = rest

    async def answer(
        self, step: int, prompt: Prompt, observation: Observation, history: list[Turn], last: str | None
    ) -> Answer:
        who = self.first if len(history) < self.steps else self.rest
        return await who.answer(step, prompt, observation, history, last)


async def test_a_claim_without_the_deed_fails_and_a_refusal_is_told_at_once(pool: DesktopPool) -> None:
    said = Said("Agent.clik(e1)", "Agent.type(text='x')", "Agent.exit(success=True)")
    played = await Player(pool).play("text_editor/train/1", lambda _: said)
    assert not played.success
    assert [prompt.splitlines()[-1] for prompt in said.prompts] == [
        "last: None",
        "last: there is no function Agent.clik: did you mean Agent.click?",
        "last: Type Success",
    ]
    assert "did: refused" in said.prompts[1].splitlines()
