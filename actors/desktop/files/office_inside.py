"""LibreOffice's side of a comparison. Runs in a sandbox of its own, by the system's Python, which has UNO.

Of each W.want.ENDING in the folder of the first argument it makes what LibreOffice itself saves of it: once, twice, by
way of another format, and by its other filter of this ending, each as a flat file, too. Of each N-W.end.ENDING, which
should be like W, it makes the flat file. Of workbooks it says what the formulas come to with other numbers. A line on
stdout says how far it has come.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import uno
from com.sun.star.beans import PropertyValue
from com.sun.star.connection import NoConnectException
from com.sun.star.lang import DisposedException
from com.sun.star.sheet.CellFlags import FORMULA, VALUE

OFFICE = "/usr/lib/libreoffice/program/soffice.bin"
_ODF = "OpenDocument"
FILTERS = {  # by ending: its own, the flat file's, another format's, with endings, and another one of this ending
    "docx": ("MS Word 2007 XML", ("fodt", f"{_ODF} Text Flat XML"), ("odt", "writer8"), "Office Open XML Text"),
    "xlsx": ("Calc MS Excel 2007 XML", ("fods", f"{_ODF} Spreadsheet Flat XML"), ("ods", "calc8"),
             "Calc Office Open XML"),
    "odp": ("impress8", ("fodp", f"{_ODF} Presentation Flat XML"), ("pptx", "Impress MS PowerPoint 2007 XML"), ""),
}  # fmt: skip
ROUNDS, LARGEST, SCALES = 9, 9999, (0.25, 25e2, 25e6)  # quarters are exact in any sum
TRIES = 4  # to draw quarters whose sums are no whole numbers
START_S, PAUSE_S, BURY_S = 120.0, 0.02, 10.0
END_S, TIMES = 20.0, 20  # an end may take so long, or so many times as long as what is wanted took


def named(**values: object) -> tuple[Any, ...]:
    """Arguments as UNO has them."""
    return tuple(PropertyValue(Name=name, Value=value) for name, value in values.items())


def say(word: str) -> None:
    """Tell the host."""
    print(word, flush=True)  # noqa: T201 - what the host reads


def started(profile: str) -> subprocess.Popen[bytes]:
    """LibreOffice, which ends with the sandbox."""
    accept = "--accept=pipe,name=judge;urp;"
    flags = ["--headless", "--norestore", "--nologo", "--nodefault", "--nolockcheck"]
    argv = [OFFICE, f"-env:UserInstallation=file://{profile}", *flags, accept]
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def connected(office: subprocess.Popen[bytes]) -> Any:
    """LibreOffice's desktop."""
    local = uno.getComponentContext()
    resolver = local.ServiceManager.createInstanceWithContext("com.sun.star.bridge.UnoUrlResolver", local)
    until = time.monotonic() + START_S
    while True:
        try:
            context = resolver.resolve("uno:pipe,name=judge;urp;StarOffice.ComponentContext")
            return context.ServiceManager.createInstanceWithContext("com.sun.star.frame.Desktop", context)
        except NoConnectException:
            if time.monotonic() > until or office.poll() is not None:
                raise
            time.sleep(PAUSE_S)


class Judge:
    """Opens and saves the documents of one folder."""

    def __init__(self, desktop: Any, folder: Path) -> None:
        self._desktop = desktop
        self._folder = folder

    def opened(self, name: str, kind: str) -> Any:
        """The document, without its macros and links, by the filter `kind` alone. Raises RuntimeError."""
        how = named(Hidden=True, FilterName=kind, MacroExecutionMode=0, UpdateDocMode=0)
        document = self._desktop.loadComponentFromURL(f"file://{self._folder}/{name}", "_blank", 0, how)
        if document is None:
            raise RuntimeError(f"{name} was not opened")
        return document

    def saved(self, document: Any, name: str, kind: str) -> None:
        document.storeToURL(f"file://{self._folder}/{name}", named(FilterName=kind))

    def again(self, source: str, source_kind: str, target: str, kind: str) -> None:
        document = self.opened(source, source_kind)
        self.saved(document, target, kind)
        document.close(True)

    def known(self, number: str, ending: str) -> list[tuple[str, Any]]:
        """What is wanted, as LibreOffice saves it; the numbers that its formulas come to, with what they come from.

        What is saved can leave its marks on what is saved next, so each file is of a document opened for it.
        """
        kind, (flat, flat_kind), (other, other_kind), twin = FILTERS[ending]
        at = f"{number}.want"
        self.again(f"{at}.{ending}", kind, f"{at}.1.{ending}", kind)
        self.again(f"{at}.1.{ending}", kind, f"{at}.2.{ending}", kind)
        self.again(f"{at}.1.{ending}", kind, f"{at}.{other}", other_kind)
        self.again(f"{at}.{other}", other_kind, f"{at}.3.{ending}", kind)
        if twin:
            self.again(f"{at}.1.{ending}", kind, f"{at}.4.{ending}", twin)
        for form in ("2", "3", "4") if twin else ("2", "3"):
            self.again(f"{at}.{form}.{ending}", kind, f"{at}.{form}.{flat}", flat_kind)
        document = self.opened(f"{at}.1.{ending}", kind)
        self.saved(document, f"{at}.1.{flat}", flat_kind)
        tried = rounds(document) if ending == "xlsx" else []
        document.close(True)
        return tried

    def end(self, number: str, ending: str, tried: list[tuple[str, Any]]) -> list[Any]:
        kind, (flat, flat_kind), *_ = FILTERS[ending]
        document = self.opened(f"{number}.end.{ending}", kind)
        self.saved(document, f"{number}.end.{flat}", flat_kind)
        numbers = [results(document, json.loads(inputs), [*came]) for inputs, came in tried]
        document.close(True)
        return numbers


def places(document: Any, kind: int) -> list[str]:
    """The cells of what is wanted that hold such content: sheet, column and row of each."""
    return [
        f"{at} {column} {row}"
        for at in range(document.Sheets.Count)
        for cells in document.Sheets.getByIndex(at).queryContentCells(kind).RangeAddresses
        for column in range(cells.StartColumn, cells.EndColumn + 1)
        for row in range(cells.StartRow, cells.EndRow + 1)
    ]


Drawing = tuple[str, dict[str, "float | str"]]  # numbers for cells as JSON, and what each formula comes to


def rounds(document: Any) -> list[Drawing]:
    """Other numbers for all cells that hold one, some times over, and what the formulas come to with them."""
    constants, formulas = places(document, VALUE), places(document, FORMULA)
    if not formulas:
        return []
    drawn = random.SystemRandom()

    def drawing(scale: float) -> Drawing:
        inputs = {place: drawn.randint(-LARGEST, LARGEST) * scale for place in constants}
        return json.dumps(inputs), dict(zip(formulas, results(document, inputs, formulas), strict=True))

    drawings, whole = [], set(formulas)  # those whose results had no fraction yet: what rounds passes for them
    for at in range(ROUNDS):
        scale = SCALES[at % len(SCALES)]
        tries = [drawing(scale) for _ in range(TRIES if scale < 1 else 1)]
        drawings.append(max(tries, key=lambda made: len(whole & fractions(made))))
        whole -= fractions(drawings[-1])
    return drawings


def fractions(drawing: Drawing) -> set[str]:
    """The formulas that came to no whole number."""
    return {place for place, came in drawing[1].items() if isinstance(came, float) and not came.is_integer()}


def results(document: Any, inputs: dict[str, float], formulas: list[str]) -> list[float | str]:
    """What the cells `formulas` come to once `inputs` are in theirs; an error as its words."""

    def cell(place: str) -> Any:
        sheet, column, row = map(int, place.split())
        return document.Sheets.getByIndex(sheet).getCellByPosition(column, row)

    for place, value in inputs.items():
        cell(place).Value = value
    document.calculateAll()
    return [f"error {formula.getError()}" if formula.getError() else formula.Value for formula in map(cell, formulas)]


def late() -> None:
    """End for a document that takes too long."""
    say("late")
    os._exit(1)


def judged(judge: Judge, folder: Path) -> None:
    """All pairs; what is wanted comes first, for it shows that LibreOffice works here."""
    ends, wanted = (
        [(path.name.split(".")[0], path.suffix[1:]) for path in sorted(folder.glob(f"*.{kind}.*"))]
        for kind in ("end", "want")
    )
    began = time.monotonic()
    tried = {number: judge.known(number, ending) for number, ending in wanted}
    patience = max(END_S, TIMES * (time.monotonic() - began))
    say("known")
    for number, ending in ends:
        like = tried[number.partition("-")[2]]
        watch = threading.Timer(patience, late)
        watch.start()
        try:
            came: list[Any] = judge.end(number, ending, like)
        except DisposedException:
            raise
        except Exception as error:  # noqa: BLE001 - of a file that is not opened UNO raises nearly every error there is
            (folder / f"{number}.refused").write_text(f"{type(error).__name__}: {error}"[:300])
            continue
        finally:
            watch.cancel()
        numbers = {"wanted": [[*came_to.values()] for _, came_to in like], "found": came}
        (folder / f"{number}.numbers").write_text(json.dumps(numbers))
    say("done")


def main() -> None:
    """Judge what lies in the first argument's folder, with the profile of the second."""
    folder = Path(sys.argv[1])
    office = started(sys.argv[2])
    try:
        judged(Judge(connected(office), folder), folder)
    except (DisposedException, NoConnectException):
        say(f"ended {office.wait(BURY_S)}")
    finally:
        office.kill()
        office.wait()
    os._exit(0)  # UNO's threads may crash an interpreter that takes itself down, and the host reads what that says


if __name__ == "__main__":
    main()
