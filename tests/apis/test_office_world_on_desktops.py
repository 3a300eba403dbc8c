"""OfficeWorld's task files on real desktops: the expected end scores 1, a near miss of it and the start do not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from actors.desktop.faults import Culprit
from actors.desktop.player import Play
from actors.desktop.pool.pool import DesktopPool
from apis.tasks import osworld
from apis.tasksets import store
from apis.tasksets.getters import WantedFixture
from tests.apis.plays import told
from tests.apis.standins import office, standins
from tests.apis.task_files import bring
from tests.apis.test_guard import OFFICEWORLD
from tests.apis.test_task_files_on_desktops import CLAIM

pytestmark = pytest.mark.usefixtures("own_store")

NEAR = "golb"  # in the place of the word that the expected file has
BATCH = 10  # files of a kind in one test


def ended(task: dict[str, Any], name: str, end: bytes) -> dict[str, Any]:
    """The task with its start's last content: the office shows it, and what comes after the last action saves it."""
    before, opened = task["config"][:-1], task["config"][-1]
    return {**task, "id": name, "config": [*before, bring({task["evaluator"]["result"]["path"]: end}), opened]}


@pytest.mark.proof
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", [0, BATCH])
@pytest.mark.parametrize("domain", ["ow-docx", "ow-pptx", "ow-xlsx"])
async def test_right_ends_near_misses_and_starts_are_judged_as_known(
    pool: DesktopPool, tmp_path: Path, domain: str, first: int
) -> None:
    if not OFFICEWORLD.is_dir():
        pytest.skip("published task files do not lie beside this checkout")
    files, known = [], []
    for file in sorted((OFFICEWORLD / domain).glob("*.json"))[first : first + BATCH]:
        task, fixtures = osworld.load(file.read_bytes()), standins(osworld.load(file.read_bytes()))
        expected = task.evaluator.rows()[0][2]
        near = office(NEAR, domain.removeprefix("ow-"), task)
        assert near is not None
        ends = {"right": fixtures[expected["path"], expected["dest"]], "near": near, "start": None}
        for kind, end in ends.items():
            name = f"{task.id}-{kind}"
            plain = json.loads(file.read_bytes())
            made = {**plain, "id": name} if end is None else ended(plain, name, end)
            files.append(tmp_path / domain / f"{name}.json")
            files[-1].parent.mkdir(exist_ok=True)
            files[-1].write_text(json.dumps(made))
            known.append(kind == "right")
            for (url, called), data in fixtures.items():
                store.keep(WantedFixture(name, url, called), data)
    name = store.adopt("mine", files, pinned=False)
    ids = [f"{name}/{domain}/{file.stem}" for file in files]
    places = asyncio.Semaphore(2)

    async def played(task_id: str) -> Play:
        async with places:
            return await told(pool, task_id, CLAIM)

    plays = await asyncio.gather(*map(played, ids))
    assert not [fault for play in plays for fault in play.faults if fault.culprit is not Culprit.HOST]
    assert {id_: play.success for id_, play in zip(ids, plays, strict=True)} == dict(zip(ids, known, strict=True)), [
        play.detail for play in plays
    ]
