"""Rebuilds ten of Calc's functions blind: `python -m tests.build.blind build OUT ...` and `... check OUT`.

`build` is `computerrl apis build` where the ten are not known; `check` runs Calc's own cases of them on what was built.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from msgspec.structs import replace

from actors.cluster.build.trials import BuildDesk
from actors.cluster.checks.desk import RealDesk, provider, sandbox_set
from apis import built, catalogue
from apis.apps.check.case import Case, tables
from apis.apps.check.run import run
from apis.build import answers, profile
from apis.build.answers import Interface
from tests.build.model import Recorded, served

HERE = Path(__file__).parent
APP = "libreoffice_calc"
HIDDEN = (
    "highlight_range",
    "transpose_range",
    "sort_column",
    "hide_row_data",
    "merge_cells",
    "set_cell_value",
    "freeze_panes",
    "rename_sheet",
    "copy_sheet",
    "reorder_sheets",
)


class BlindDesk(BuildDesk):
    """Calc with its own functions, the hidden ones aside: for those, what was built."""

    def __init__(self, folder: Path | None, desktops: Any) -> None:
        super().__init__(profile.load(HERE / "calc_profile.yaml"), desktops)
        self._table = tables()[APP]
        self._functions, self._sources = _built(folder) if folder else _recorded()

    async def tool(self, name: str, /, **arguments: Any) -> str:
        if name not in HIDDEN:
            return await RealDesk.tool(self, name, **arguments)
        if name not in self._sources:
            return "refused: it was not accepted"
        self.interface, self.source = self._functions[name], self._sources[name]
        return await super().tool(name, **arguments)


def _unsaid(case: Case) -> Case:
    said = "" if case.effect or case.saved else case.says
    return replace(case, says=said, refusal=case.refusal.partition(":")[0])


def _built(folder: Path) -> tuple[dict[str, Interface], dict[str, str]]:
    functions = built.read(folder).functions.items()
    return {name: Interface(name, each.does, each.params) for name, each in functions}, built.sources(folder)


def _recorded() -> tuple[dict[str, Interface], dict[str, str]]:
    """The first answers of the recording, which no build has judged."""
    given = yaml.safe_load((HERE / "calc.yaml").read_text())
    functions, refused = answers.interfaces(given["require 1"], [], [])
    assert not refused
    return {each.name: each for each in functions}, {name: answers.code(given[f"implement {name}"]) for name in HIDDEN}


async def checked(folder: Path | None, overrides: Sequence[str], *, words: bool = False) -> dict[str, str]:
    """What is wrong with each of the ten by Calc's own cases, "" where nothing is.

    No declaration says how a function words its answer. So a refusal has to begin with the argument's name, and only
    `words` asks for the sentences of Calc's own functions.
    """
    async with provider(sandbox_set(overrides)) as desktops:
        desk = BlindDesk(folder, desktops)
        try:
            await desk.again()
            cases = [each if words else _unsaid(each) for each in tables()[APP].cases]
            outcomes = await run(replace(tables()[APP], cases=cases), desk, 0, lambda _: None, HIDDEN)
        finally:
            await desk.close()
    return {each.case.function: each.problem for each in outcomes}


async def rebuilt(out: Path, overrides: Sequence[str]) -> int:
    """The exit status of a build from the recording, without the hidden functions."""
    async with served(Recorded(yaml.safe_load((HERE / "calc.yaml").read_text()))) as url:
        command = [sys.executable, "-m", "tests.build.blind", "hidden", "apis", "build", "--model", url]
        command += ["--app", str(HERE / "calc_profile.yaml"), "--tasks", str(HERE / "calc.txt")]
        command += ["--model-name", "recorded", "--out", str(out)]
        command += [word for each in overrides for word in ("--set", each)]
        return await (await asyncio.create_subprocess_exec(*command)).wait()


def hidden_main(words: Sequence[str]) -> int:
    """`computerrl WORDS` in a process that has never heard of the ten."""
    catalogue.TOOLS[APP] = tuple(each for each in catalogue.TOOLS[APP] if each.name not in HIDDEN)
    from actors.cluster.cli import main

    return main(words)


if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    if verb == "hidden":
        sys.exit(hidden_main(rest))
    with suppress(KeyboardInterrupt):
        if verb == "build":
            sys.exit(asyncio.run(rebuilt(Path(rest[0]), rest[1:])))
        for name, problem in asyncio.run(checked(Path(rest[0]) if rest[0] else None, rest[1:])).items():
            sys.stdout.write(f"{name}: {problem or 'ok'}\n")
