"""Oracles of Chromium's and VLC's tasks on real desktops; what is bookmarked last counts though it is written late."""

from __future__ import annotations

import pytest

from actors.cluster.checks.apis.command import missing
from actors.desktop.pool.pool import DesktopPool
from tests.apis.plays import Form, oracle_finds_back, oracle_solves, told
from tests.proofs import proofs

pytestmark = pytest.mark.skipif(
    bool(missing("vlc") or missing("google_chrome")), reason="VLC or Chromium is not installed"
)
MOST_CHARS = 2800  # of a compact prompt


@pytest.mark.parametrize(
    ("family", "route", "form"),
    [
        ("vlc_playlist", "mixed", "published"),
        *proofs(
            ("vlc_setting", "api", "compact"),
            ("web_tab", "gui", "published"),
            ("web_bookmark", "api", "compact"),
            ("web_note", "gui", "compact"),
            ("web_all", "gui", "compact"),
            ("vlc_playlist", "gui", "compact"),
            ("vlc_setting", "gui", "compact"),
            ("vlc_save", "gui", "compact"),
        ),
    ],
)
async def test_oracles_solve_their_tasks_by_every_route(family: str, route: str, form: Form, pool: DesktopPool) -> None:
    await oracle_solves(pool, f"{family}/held-out/3", form=form, route=route, most_chars=MOST_CHARS)


@pytest.mark.proof
async def test_the_page_that_shows_is_not_the_one_that_was_asked_for(pool: DesktopPool) -> None:
    played = await told(pool, "web_tab/train/1", "BrowserTools.bookmark_page()", "Agent.exit(success=True)")
    assert not played.success
    assert "a bookmark" in played.detail, played.detail


@pytest.mark.proof
async def test_it_finds_back_after_stray_steps(pool: DesktopPool) -> None:
    await oracle_finds_back(pool, "vlc_playlist/train/3", route="gui")
