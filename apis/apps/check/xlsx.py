"""Reads back a saved workbook (.xlsx), knowing nothing of the code that wrote it.

Invariant: what is found comes from the file's own parts (ECMA-376, SpreadsheetML) by name, never from an answer.
"""

from __future__ import annotations

import io
import re
import zipfile
from typing import Any

from defusedxml import ElementTree

from apis.apps.check.case import NotSo


class WorkbookFile:
    """The parts of the workbook in `data`. Raises NotSo where it is none."""

    def __init__(self, data: bytes) -> None:
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except zipfile.BadZipFile:
            raise NotSo("the saved file is no workbook") from None
        workbook = self.text("xl/workbook.xml")
        self.sheets: list[str] = re.findall(r'<sheet name="([^"]*)"', workbook)
        ids = re.findall(r'<sheet [^>]*r:id="([^"]*)"', workbook)
        targets = {link.get("Id"): link.get("Target") for link in self._xml("xl/_rels/workbook.xml.rels")}
        self._parts = {name: f"xl/{targets[number]}" for name, number in zip(self.sheets, ids, strict=True)}
        shared = self._xml("xl/sharedStrings.xml")
        self._strings = ["".join(p.text or "" for p in item.iter() if p.tag.endswith("}t")) for item in shared]

    def _xml(self, name: str) -> Any:
        return ElementTree.fromstring(self.text(name))

    def text(self, name: str) -> str:
        """A part's XML. Raises NotSo."""
        try:
            return self._zip.read(name).decode()
        except KeyError:
            raise NotSo(f"the saved file has no part {name}") from None

    def charts(self) -> list[str]:
        """XML of every chart."""
        return [self.text(name) for name in self._zip.namelist() if re.match(r"xl/charts/chart\d+\.xml", name)]

    def sheet(self, name: str) -> str:
        """A sheet's XML. Raises NotSo."""
        if name not in self._parts:
            raise NotSo(f"the saved file has no sheet {name!r}, only {self.sheets}")
        return self.text(self._parts[name])

    def cell(self, sheet: str, name: str) -> Any:
        """A cell's value: a text, a number, "1" or "0" for a boolean, None where it is empty."""
        found = re.search(rf'<c r="{name}"[^>]*?(?: t="(\w+)")?(?:/>|>(.*?)</c>)', self.sheet(sheet))
        value = re.search(r"<v>(.*?)</v>", found[2] or "") if found else None
        if found is None or value is None:
            return None
        return self._strings[int(value[1])] if found[1] == "s" else value[1] if found[1] == "b" else float(value[1])

    def column(self, sheet: str, letters: str, end: int = 5) -> list[Any]:
        """A column's first `end` cells."""
        return [self.cell(sheet, f"{letters}{row}") for row in range(1, end + 1)]

    def style(self, sheet: str, cell: str) -> dict[str, str]:
        """The XML of a cell's fill, font and alignment, and its number format's code. Raises NotSo."""
        number = re.search(rf'<c r="{cell}" s="(\d+)"', self.sheet(sheet))
        text = self.text("xl/styles.xml")
        formats = re.search(r"<cellXfs.*?</cellXfs>", text, re.DOTALL)
        if number is None or formats is None:
            raise NotSo(f"{cell} of {sheet!r} has no style")
        xf = re.findall(r"<xf .*?</xf>", formats[0], re.DOTALL)[int(number[1])]
        at = {name: int(value) for name, value in re.findall(r'(numFmt|font|fill)Id="(\d+)"', xf)}
        code = re.search(rf'numFmtId="{at["numFmt"]}" formatCode="([^"]*)"', text)
        return {
            "fill": re.findall(r"<fill>.*?</fill>", text, re.DOTALL)[at["fill"]],
            "font": re.findall(r"<font>.*?</font>", text, re.DOTALL)[at["font"]],
            "align": xf,
            "format": code[1] if code else "",
        }
