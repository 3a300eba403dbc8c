"""Scenes with real applications: what they say and do where something is in the way. The scenes are data, in `scenes`.

The scenes of an application share a desktop, in their order. `make proofs` plays those whose name begins with "proof".
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import yaml

from actors.cluster.checks.desk import opened, provider
from actors.cluster.checks.functions import missing
from actors.desktop.config import SandboxConfig
from apis.apps.check.case import NotSo, Step, Table
from apis.apps.check.steps import Steps
from apis.documents.odp import make_odp
from apis.observation import from_guest
from tests.apis.office_pairs import deleted, run, text, xml
from tests.apis.scene_files import BODY, LOCKED, odt, with_parts, workbook
from tests.folders import desk_folder

pytestmark = [pytest.mark.desktop, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]


class Scenes(Table, frozen=True, forbid_unknown_fields=True):
    """An application's scenes, each a list of steps."""

    texts: dict[str, str] = {}
    scenes: dict[str, list[Any]] = {}

    def made(self) -> dict[str, bytes]:
        texts = {path: odt(body) for path, body in self.texts.items()}
        return super().made() | texts | BROUGHT.get(self.app, {})


BROUGHT = {  # files that no table makes
    "libreoffice_calc": {"Documents/book.xlsx": workbook(), "Documents/locked.fods": LOCKED.encode()},
    "libreoffice_writer": {
        "Documents/paper.odt": odt(BODY),
        "Documents/many.odt": odt(f"<text:p>{'ab ' * 2001}</text:p><text:p>ab</text:p>"),
        "Documents/long.odt": odt(f"<text:p>line \U0001f600 {'y' * 20}</text:p>" * 200),
        "Documents/tracked.docx": text(
            xml(deleted("fig") + run("pear fig")),
            xml(run("plu") + deleted("XX") + run("m and plum")),
            xml(run("The price is ") + deleted("old cost") + run("new cost now.")),
        ),
    },
    "libreoffice_impress": {
        "Documents/talk.odp": make_odp([[("title", "Plan"), ("outline", "one\ntwo")], [("title", "End")]]),
        "Documents/bare.odp": make_odp([[("title", "Plan"), ("outline", "one")]]),
        "Documents/parts.odp": with_parts(),
        "Documents/views.odp": make_odp([[("title", f"S{n}")] for n in range(1, 4)]),
    },
}
TABLES = {
    path.stem: msgspec.convert(yaml.safe_load(path.read_text("utf-8")), Scenes)
    for path in sorted(Path(__file__).with_name("scenes").glob("*.yaml"))
}
ROWS = [
    pytest.param(app, name, marks=[pytest.mark.proof] * name.startswith("proof"))
    for app, table in TABLES.items()
    for name in table.scenes
]


class Hands(Steps):
    """Steps that click on what shows, too: `at` names a part of its tag, and its name or text."""

    async def _read(self, step: Step) -> Any:
        if step.guest != "click":
            return await super()._read(step)
        more = dict(step.given)
        tag, label = more.pop("at")
        seen = from_guest(await self._desk.call("observe"))
        for element in seen.elements:
            if tag in element.tag and label in (element.name, element.text):
                return str(await self._desk.call("click", x=element.cx, y=element.cy, **more))
        raise NotSo(f"no {tag} {label}: {[(element.tag, element.label) for element in seen.elements]}")


def flat(told: list[Any], **more: Any) -> Iterator[dict[str, Any]]:
    """The steps of nested lists; what stands beside `all` is said of each of its steps."""
    for one in told:
        if isinstance(one, list):
            yield from flat(one, **more)
        elif "all" in one:
            yield from flat(one["all"], **{key: value for key, value in one.items() if key != "all"}, **more)
        else:
            yield one | more


class Stage:
    """The desktop of the application whose scenes are played."""

    def __init__(self) -> None:
        self._app, self._held = "", AsyncExitStack()

    async def steps(self, app: str) -> Hands:
        """What carries out steps on the application's desktop, which is booted for its first scene."""
        if app != self._app:
            await self.close()
            made = await self._held.enter_async_context(provider(SandboxConfig(state_dir=self._folder())))
            desk = await self._held.enter_async_context(opened(made, TABLES[app]))
            self._app, self._steps = app, Hands(TABLES[app], desk)
        return self._steps

    def _folder(self) -> str:
        return self._held.enter_context(desk_folder())

    async def close(self) -> None:
        self._app = ""
        await self._held.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    yield made
    await made.close()


@pytest.mark.parametrize(("app", "scene"), ROWS)
async def test_a_scene_goes_as_it_is_told(stage: Stage, app: str, scene: str) -> None:
    if lacking := missing(TABLES[app].app):
        pytest.skip(lacking)
    steps = await stage.steps(app)
    await steps.run(msgspec.convert(list(flat(TABLES[app].scenes[scene])), list[Step]))
