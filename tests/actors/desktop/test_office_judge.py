"""LibreOffice as the reader of documents: what was done honestly passes in each way to save it, and nothing else does.

The ends are made by LibreOffice itself, by hands that know what is asked and do more, less or something else.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from actors.desktop.files.office import PROGRAM
from actors.desktop.files.read_home import FileSeen, ReadLimits, as_wanted
from actors.desktop.providers import home
from apis.tasks.verify import office
from apis.tasks.verify.verify import OFFICE, WantedFile

HANDS = Path(__file__).with_name("office_hands.py")
KINDS = {
    "docx": ["MS Word 2007 XML", "writer8", "Office Open XML Text"],
    "xlsx": ["Calc MS Excel 2007 XML", "calc8", "Calc Office Open XML"],
    "odp": ["impress8", "Impress MS PowerPoint 2007 XML"],
}  # fmt: skip
ROWS = {"A1": "item", "B1": "price", "A2": "tea", "A3": "rice", "A4": "salt"}
NUMBERS = {"B2": 12.0, "B3": 30.0, "B4": 7.0}
PAPER = [{"text": "one two"}, {"text": "three", "looks": ["strike"]}, {"text": "four", "layout": ["center"]}]
DECK = [{"boxes": [["title", "plan"], ["outline", "one\ntwo"]]}, {"boxes": [["title", ""], ["outline", "end"]]}]
SHEET = {"name": "Sheet1", "cells": {**ROWS, **NUMBERS, "B5": 49.0}, "formulas": {"B5": "B2:B4"}}
STARTS = {
    "docx": office.text_document({"expected": [{"text": "one two"}, {"text": "three"}, {"text": "four"}]}),
    "xlsx": office.workbook({"expected": [{"name": "Sheet1", "cells": {**ROWS, **NUMBERS}}]}),
    "odp": office.presentation({"expected": [DECK[0], {"boxes": [["title", "old"], ["outline", "end"]]}]}),
}
WANTED = {
    "docx": office.text_document({"expected": PAPER}),
    "xlsx": office.workbook({"expected": [SHEET]}),
    "odp": office.presentation({"expected": DECK}),
}
ENDS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("office_ends.yaml").read_text("utf-8"))
DONE, FORMULAS, MORE = ENDS["done"], ENDS["formulas"], ENDS["more"]
needs_office = pytest.mark.skipif(not PROGRAM.is_file(), reason="LibreOffice is not installed")
pytestmark = [needs_office, pytest.mark.slow, pytest.mark.timeout(600)]


def made(folder: Path, jobs: Mapping[str, tuple[str, list[str], str]], starts: Mapping[str, bytes]) -> dict[str, bytes]:
    """The ends by their names: of each the ending, the filters on the way, and what is done."""
    profile = home.office_profile()
    if profile is not None:
        shutil.copytree(profile / "4" / "user", folder / "profile" / "user")
    for ending, data in starts.items():
        (folder / f"start.{ending}").write_bytes(data)
    numbered = [
        [str(folder / f"start.{ending}"), str(folder / f"{number}.{ending}"), filters, program]
        for number, (ending, filters, program) in enumerate(jobs.values())
    ]
    command = ["/usr/bin/python3", "-I", str(HANDS), str(folder / "profile")]
    subprocess.run(command, input=json.dumps(numbered).encode(), check=True, timeout=500)
    return {name: Path(numbered[number][1]).read_bytes() for number, name in enumerate(jobs)}


async def judged(ends: Mapping[str, bytes], wanted: Mapping[str, bytes] = WANTED) -> dict[str, str]:
    """What is wrong with each end, whose name's last word is its ending."""
    asked = [WantedFile(f"Documents/{name}", OFFICE, expected=wanted[name.rpartition(".")[2]]) for name in ends]
    seen = [FileSeen(path=want.path, data=data) for want, data in zip(asked, ends.values(), strict=True)]
    found = await as_wanted(asked, seen, ReadLimits())
    return {
        name: one.office.difference if one.office else f"{one.refusal}" for name, one in zip(ends, found, strict=True)
    }


@pytest.mark.parametrize("ending", KINDS)
async def test_what_was_asked_passes_in_every_way_to_save_it_and_nothing_beside_it_does(
    ending: str, tmp_path: Path
) -> None:
    own, other, *twins = KINDS[ending]
    honest = {"saved": [own, own], "saved again": [own, own, own], "by another format": [own, other, own]}
    honest |= {twin: [own, twin] for twin in twins}
    jobs = {f"{name}.{ending}": (ending, filters, DONE[ending]) for name, filters in honest.items()}
    if ending == "xlsx":
        for at, formula in enumerate(FORMULAS):
            jobs[f"formula {at}.xlsx"] = ("xlsx", [own, own], f"cell(doc, 'B5').Formula = {formula!r}")
    jobs[f"undone.{ending}"] = (ending, [own, own], "")
    for name, program in MORE[ending].items():
        jobs[f"{name}.{ending}"] = (ending, [own, own], f"{DONE[ending]}\n{program}")
    found = await judged(made(tmp_path, jobs, STARTS))
    passed = {name.rpartition(".")[0] for name, difference in found.items() if not difference}
    sums = {f"formula {at}" for at, right in enumerate(FORMULAS.values()) if right and ending == "xlsx"}
    assert passed == honest.keys() | sums, {name: found[name] for name in found}


async def test_an_outline_that_is_emptied_is_as_one_without_text_but_no_other_looks(tmp_path: Path) -> None:
    full, empty = ({"boxes": [["title", "plan"], ["outline", text]]} for text in ("one\ntwo", ""))
    start, wanted = (office.presentation({"expected": [slide, DECK[1]]}) for slide in (full, empty))
    emptied = "box(doc, 0, 1).String = ''"
    programs = {
        "emptied": emptied,
        "painted": f"{emptied}; box(doc, 0, 1).FillStyle = uno.Enum('com.sun.star.drawing.FillStyle', 'SOLID')",
        "resized": f"{emptied}; box(doc, 0, 1).Size = struct('awt.Size', Width=10, Height=10)",
        "full": "",
    }
    jobs = {f"{name}.odp": ("odp", ["impress8", "impress8"], program) for name, program in programs.items()}
    found = await judged(made(tmp_path, jobs, {"odp": start}), {"odp": wanted})
    assert [name for name, difference in found.items() if not difference] == ["emptied.odp"], found
