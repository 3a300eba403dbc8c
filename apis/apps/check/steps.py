"""Carries out the steps of a case on a desk, and reads saved files without the code that wrote them."""

from __future__ import annotations

import io
import re
import time
import zipfile
import zlib
from collections.abc import Sequence
from typing import Any

import openpyxl
from lxml import etree
from PIL import Image
from pypdf import PdfReader
from pypdf.errors import PyPdfError

from apis.apps.check.case import Case, Desk, NotSo, Step, Table

REFUSED = "refused: "
REST = {"timeout_ms": 2000, "quiet_ms": 100}
SHOWN = 600  # characters of a finding
UNPACKED_MAX = 64 << 20
_PARSER = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)


class Steps:
    """The steps of one table on one desk."""

    def __init__(self, table: Table, desk: Desk) -> None:
        self._table, self._desk = table, desk
        self._kept = {"home": desk.home}

    async def before(self, case: Case) -> None:
        """Prepare what a case needs. Raises NotSo."""
        self._kept["function"] = case.function
        await self.run(self._table.before if case.before is None else case.before)

    async def run(self, steps: Sequence[Step], answer: str = "") -> None:
        """Carry all of them out. Raises NotSo."""
        self._kept |= {"home": self._desk.home, "answer": answer}
        for step in steps:
            await self._one(step)

    async def _one(self, step: Step) -> None:
        until = time.monotonic() + (self._table.wait_s if step.wait or step.look else 0.0)
        while True:
            try:
                got = await self._read(step)
                problem = self._problem(step, got)
            except NotSo as error:  # a file that is not there yet
                problem = str(error)
            if not problem:
                return
            if time.monotonic() >= until:
                raise NotSo(problem)
            await self._desk.call("settle", **REST)
            for each in step.between:
                await self._one(each)

    async def _read(self, step: Step) -> Any:
        """What the step gives: a text, a number or a list of values."""
        if step.tool:
            return await self._desk.tool(step.tool, **self._filled(step.given))
        if step.guest:
            return str(await self._desk.call(step.guest, **self._filled(step.given)))
        if step.look:
            return await self._shows()
        if step.answer:
            return self._kept["answer"]
        return await self._in_file(step)

    async def _shows(self) -> str:
        seen = await self._desk.call("observe")
        windows = [f"{'active' if each['active'] else 'window'}: {each['title']}" for each in seen["windows"]]
        elements = [f"{element[0]}: {element[1]}" for element in seen["elements"]]
        return "\n".join([*windows, *elements, seen["info"]])

    async def _in_file(self, step: Step) -> Any:
        """Raises NotSo, for a file that is only half written, too."""
        path = self._filled(step.file) or self._table.saves
        data = await self._desk.contents(path)
        same = await self._desk.contents(self._filled(step.same)) if step.same else None
        try:
            return self._of_file(step, data, same)
        except (PyPdfError, zipfile.BadZipFile, zlib.error, etree.XMLSyntaxError, LookupError, OSError) as error:
            raise NotSo(f"{path}: {type(error).__name__}: {error}") from error

    def _of_file(self, step: Step, data: bytes, same: bytes | None) -> Any:
        if step.part:
            data = _archive(data).read(self._filled(step.part))
        if same is not None:
            return data == same
        if step.column:
            return _column(data, *step.column)
        if step.xpath:
            return values(data, step.xpath)
        if step.kind == "pages":
            return len(PdfReader(io.BytesIO(data)).pages)
        if step.kind == "picture":
            return _picture(data)
        return data.decode("utf-8", "replace")

    def _filled(self, given: Any) -> Any:
        if isinstance(given, dict):
            return {key: self._filled(value) for key, value in given.items()}
        if isinstance(given, list):
            return [self._filled(value) for value in given]
        if isinstance(given, str):
            for name, value in self._kept.items():
                given = given.replace(f"{{{name}}}", value)
        return given

    def _problem(self, step: Step, got: Any) -> str:
        """Why what was read is not as wanted, "" where it is."""
        text = got if isinstance(got, str) else repr(got)
        wants = step.has or step.lacks or step.matches or step.equals is not None or step.near
        if step.tool and not wants and text.startswith(REFUSED) and not (step.allow and step.allow in text):
            return f"{step.tool}: {text[:SHOWN]}"
        if any(self._filled(part) not in text for part in step.has):
            return f"{step.has} is not in {text[:SHOWN]}"
        if any(self._filled(part) in text for part in step.lacks):
            return f"{step.lacks} is in {text[:SHOWN]}"
        if step.equals is not None and got != self._filled(step.equals):
            return f"{text[:SHOWN]}, not {step.equals!r}"
        if step.near and not _near(got if isinstance(got, list) else [got], step.near):
            return f"{text[:SHOWN]}, not {step.near}"
        if step.matches:
            match = re.search(self._filled(step.matches), text, re.MULTILINE)
            if match is None:
                return f"no {step.matches!r} in {text[:SHOWN]}"
            if step.keep:
                self._kept[step.keep] = match[1]
        return ""


def values(data: bytes, xpath: str) -> Any:
    """What an expression finds in the XML parts of an archive; see `Step.xpath`. Raises NotSo."""
    return _found(_tree(data), xpath)


def _near(got: list[Any], wanted: list[float]) -> bool:
    numbers = [float(str(each).removesuffix("cm")) for each in got]
    return len(numbers) == len(wanted) and all(abs(a - b) < 0.02 for a, b in zip(numbers, wanted, strict=True))


def _archive(data: bytes) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except zipfile.BadZipFile:
        raise NotSo("the saved file is no archive") from None
    if sum(info.file_size for info in archive.infolist()) > UNPACKED_MAX:
        raise NotSo(f"the saved file has more than {UNPACKED_MAX} bytes")
    return archive


def _tree(data: bytes) -> Any:
    """The XML parts of an archive below one element, each in a `part` with its name and, of a worksheet, its sheet."""
    archive = _archive(data)
    tree = etree.Element("file")
    for name in archive.namelist():
        if name.endswith((".xml", ".rels")):
            etree.SubElement(tree, "part", name=name).append(etree.fromstring(archive.read(name), _PARSER))
    for sheet in _found(tree, "//x:sheets/x:sheet", nodes=True):
        target = _found(tree, f"//part[@name='xl/_rels/workbook.xml.rels']//*[@Id='{sheet.get(_ID)}']/@Target")
        for part in tree.iterfind(f"part[@name='xl/{target[0]}']"):
            part.set("sheet", sheet.get("name"))
    return tree


_ID = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"


def _found(tree: Any, xpath: str, *, nodes: bool = False) -> Any:
    """What an expression gives: a text, a number, or distinct texts. A namespace has its file's prefix, `x` without."""
    spaces = {"x": "none"}
    for node in tree.iter():
        spaces |= {prefix or "x": uri for prefix, uri in node.nsmap.items() if prefix or "spreadsheetml" in uri}
    try:
        given = tree.xpath(xpath, namespaces=spaces)
    except etree.XPathEvalError as error:
        raise NotSo(f"{xpath}: {error}") from error
    if nodes or not isinstance(given, list):
        return given
    return list(dict.fromkeys(each if isinstance(each, str) else "".join(each.itertext()) for each in given))


def _column(data: bytes, sheet: str, letters: str, count: int) -> list[Any]:
    """The first cells of a column; None where one is empty."""
    _archive(data)
    book = openpyxl.load_workbook(io.BytesIO(data), data_only=True)
    if sheet not in book.sheetnames:
        raise NotSo(f"the saved file has no sheet {sheet!r}")
    return [book[sheet][f"{letters}{row}"].value for row in range(1, count + 1)]


def _picture(data: bytes) -> str:
    with Image.open(io.BytesIO(data)) as image:
        counts = image.convert("L").histogram()
        plain = "" if any(counts[:64]) and any(counts[192:]) else ", plain"
        return f"{image.format} {image.size[0]} x {image.size[1]}{plain}"
