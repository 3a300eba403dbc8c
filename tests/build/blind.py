"""Rebuilds ten of Calc's functions blind: `python -m tests.build.blind build OUT ...` and `... check OUT`.

`build` is `computerrl apis build` where the ten are not known; `check` runs Calc's own cases of them on what was built.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import yaml
from msgspec.structs import replace

from actors.cluster.build.command import profile
from actors.cluster.checks.desk import opened, provider, sandbox_set
from apis import built, catalogue
from apis.apps.check.case import Case, table_of, tables
from apis.apps.check.run import run
from apis.build import answers
from apis.built import BuiltFunction
from tests.actors.desktop.endpoint_stand_in import Recorded, StandIn

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


def _unsaid(case: Case) -> Case:
    said = "" if case.effect or case.saved else case.says
    return replace(case, says=said, refusal=case.refusal.partition(":")[0])


def _recorded() -> list[BuiltFunction]:
    """The first answers of the recording, which no build has judged."""
    given = yaml.safe_load((HERE / "calc.yaml").read_text())
    functions, refused = answers.interfaces(given["require 1"], [], [])
    assert not refused
    return [replace(each, code=answers.code(given[f"implement {each.name}"])) for each in functions]


async def checked(folder: Path | None, overrides: Sequence[str], *, words: bool = False) -> dict[str, str]:
    """What is wrong with each of the ten by Calc's own cases, "" where nothing is.

    No declaration says how a function words its answer. So a refusal has to begin with the argument's name, and only
    `words` asks for the sentences of Calc's own functions.
    """
    functions = built.read(folder).functions if folder else _recorded()
    about, table = profile(str(HERE / "calc_profile.yaml")), tables()[APP]
    functions = [each for each in functions if each.name in HIDDEN]
    cases = [each if words else _unsaid(each) for each in table.cases]
    offers = [{**each, "owner": table.owner} for each in table_of(about, functions).offers]
    table = replace(table, cases=cases, offers=[each for each in offers if each["name"] in HIDDEN])
    known = catalogue.TOOLS[APP]
    hide()
    try:
        with catalogue.shown(APP, [each.function(table.owner) for each in functions]):
            async with provider(sandbox_set(overrides)) as desktops, opened(desktops, table) as desk:
                outcomes = await run(table, desk, 0, lambda _: None, [each.name for each in functions])
    finally:
        catalogue.TOOLS[APP] = known
        catalogue._index()
    found = {each.case.function: each.problem for each in outcomes}
    return {name: found.get(name, "it was not accepted") for name in HIDDEN}


def hide() -> None:
    """Have Calc without the ten, in this process."""
    catalogue.TOOLS[APP] = tuple(each for each in catalogue.TOOLS[APP] if each.name not in HIDDEN)


async def rebuilt(out: Path, overrides: Sequence[str]) -> int:
    """The exit status of a build from the recording, without the hidden functions."""
    recorded = Recorded(yaml.safe_load((HERE / "calc.yaml").read_text()))
    async with StandIn(recorded.answer) as server:
        command = [sys.executable, "-m", "tests.build.blind", "hidden", "apis", "build", "--llm", server.url]
        command += ["--app", str(HERE / "calc_profile.yaml"), "--tasks", str(HERE / "calc.txt")]
        command += ["--model", "recorded", "--out", str(out)]
        command += [word for each in overrides for word in ("--set", each)]
        return await (await asyncio.create_subprocess_exec(*command)).wait()


def hidden_main(words: Sequence[str]) -> int:
    """`computerrl WORDS` in a process that has never heard of the ten."""
    hide()
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
