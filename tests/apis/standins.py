"""Stand-ins for the fixtures of published task files: small files of the right kind, in the published cache's layout.

Invariant: what a stand-in holds depends on its name and on its task alone. A file that a task starts with differs from
the one that it expects, so an untouched desktop is not right, and the expected file is.
"""

from __future__ import annotations

import copy
import hashlib
import io
import re
import struct
import sys
import tarfile
import time
import uuid
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import openpyxl
from docx.shared import RGBColor
from openpyxl.chart import BarChart, Reference
from openpyxl.pivot.cache import CacheDefinition, CacheField, CacheSource, WorksheetSource
from openpyxl.pivot.record import RecordList
from openpyxl.pivot.table import Location, TableDefinition
from openpyxl.worksheet.datavalidation import DataValidation
from PIL import Image

from actors.cluster import output
from actors.cluster.config import tasksets
from apis.documents.zip import zipped
from apis.guest import addresses
from apis.tasks import registry as tasks
from apis.tasks.families.vlc import sound
from apis.tasks.metrics.office_world import position
from apis.tasks.osworld import HOME, Download, Source, Task, dump
from apis.tasksets import store
from apis.tasksets.getters import names_a_file, wanted_by
from tests.apis import office_pairs
from tests.apis.scene_files import odt

PICTURES = {"png": "PNG", "xcf": "PNG", "raw": "PNG", "jpg": "JPEG", "jpeg": "JPEG", "gif": "GIF", "pdf": "PDF"}
SOUNDS = ("mp3", "mp4", "wav", "ogg", "flac", "avi", "mkv")
TEXTS = {
    "sh": "#!/bin/bash\necho {}\n", "js": "// {}\n", "json": '{{"said": "{}"}}', "css": "/* {} */\n",
    "code-workspace": '{{"folders": [], "{}": 1}}', "html": "<p>{}</p>", "py": "# {}\n",
    "dat": 'version="9"\n', "ini": "[{}]\n",
}  # fmt: skip
PROFILE = re.compile(r"^(\.thunderbird)/([^/]+)/")
WHOLE, WITHIN = (
    re.compile(rf'"{HOME}/([^"\\]+)"'),
    re.compile(rf"{HOME}/([^\s\"';|&<>*$\\)]+)"),
)  # paths in a file's text
ARCHIVED = {"pdf": "PDF", "image": "PNG"}  # what a metric of archives looks at in them, by its word
PACKED = ("zip", "vsix", "epub", "gz", "xz")
TIME = re.compile(rb"\d{4}-\d\d-\d\dT[\d:]+Z")
NAMED = re.compile(r'"[RE]N([^"]+)"')


def brought(task: Task) -> Iterator[Source]:
    """The files that it starts with."""
    for step in task.config:
        if isinstance(step, Download):
            yield from step.files


def still(package: bytes) -> bytes:
    """An office's file without the time of its making."""
    archive = zipfile.ZipFile(io.BytesIO(package))
    return zipped({name: TIME.sub(b"2020-01-01T00:00:00Z", archive.read(name)) for name in archive.namelist()})


def coloured(document: Any) -> None:
    """Words of tables in red where they begin with a vowel, else in blue."""
    for cell in (cell for table in document.tables for row in table.rows for cell in row.cells):
        for run in (run for paragraph in cell.paragraphs for run in paragraph.runs):
            run.font.color.rgb = RGBColor(255, 0, 0) if run.text[:1] in "aeiou" else RGBColor(0, 0, 255)


def content(name: str, task: Task, *, gold: bool = False) -> bytes:
    """A file of this name, as `task` starts with it or, with `gold`, expects it."""
    said, ending = ("gold" if gold else "start"), name.rpartition(".")[2].lower()
    if (made := office(said, ending, task)) is not None:
        return still(made)
    if ending in ("xlsx", "xls", "ods"):
        names = dict.fromkeys([*NAMED.findall(dump(task).decode()), "Sheet1", "Sheet2", "Sheet3"])
        return still(workbook(said, names))
    if ending == "odt":
        return still(odt(f"<text:p>{said}</text:p>"))
    if ending in ("docx", "doc"):
        looks = [office_pairs.styled(said, "2", subscript=gold), office_pairs.styled("at", strike=gold)]
        more = [office_pairs.broken(), office_pairs.table(["a", said]), coloured] if gold else []
        return still(office_pairs.text(*looks, *more))
    if ending == "pptx":
        head = office_pairs.box(said, bold=gold)
        return still(office_pairs.slides(*([head, office_pairs.spoken(said)] for _ in range(3))))
    if ending in PICTURES:
        return drawn(f"{said} {name}", PICTURES[ending])
    if ending in SOUNDS:
        return video(f"{said} {name}") if "compare_videos" in str(task.evaluator.func) else sound()
    if ending in PACKED:
        return packed(members(task, said), ending)
    return TEXTS.get(ending, "{}\n").format(said).encode()


def pivot() -> TableDefinition:
    """A pivot table of the first sheet's cells."""
    place = Location(ref="D1:E3", firstHeaderRow=1, firstDataRow=1, firstDataCol=1)
    made = TableDefinition(name="P", cacheId=1, dataCaption="a", location=place)
    source = CacheSource(type="worksheet", worksheetSource=WorksheetSource(ref="A1:B3", sheet="Sheet1"))
    made.cache = CacheDefinition(cacheSource=source, cacheFields=(CacheField(name="item"), CacheField(name="price")))
    made.cache.records = RecordList()
    return made


def workbook(said: str, names: Iterable[str]) -> bytes:
    """A workbook with these sheets; that which is expected is frozen, has a chart, a check of input and a mark."""
    made, out = openpyxl.Workbook(), io.BytesIO()
    made.remove(made.active)
    for name in names:
        sheet = made.create_sheet(name)
        for row in (["item", "price"], [said, 4.5 if said == "gold" else 3.5], ["milk", 2]):
            sheet.append(row)
    first = made.worksheets[0]
    if said == "gold":
        first.freeze_panes, first["A2"].fill = "B2", office_pairs.YELLOW
        first.add_data_validation(DataValidation("list", formula1='"yes,no"', sqref="A2:A9"))
        chart = BarChart()
        chart.add_data(Reference(first, min_col=2, min_row=1, max_row=3), titles_from_data=True)
        for sheet in made.worksheets:
            sheet.add_chart(copy.deepcopy(chart), "D2")
            sheet.add_pivot(pivot())
    made.save(out)
    return out.getvalue()


def office(said: str, ending: str, task: Task) -> bytes | None:
    """An office file for one of OfficeWorld's metrics, by the packages that these read with."""
    func, grid = task.evaluator.func, (["a", "b"], [said, "d"])
    if func == "simple_docx_compare" and ending == "docx":
        return office_pairs.text("one two", said, office_pairs.table(*grid), office_pairs.drawn(), "three")
    if func == "simple_pptx_compare" and ending == "pptx":
        first = [office_pairs.box("head"), office_pairs.gridded(*grid)]
        return office_pairs.slides(first, [office_pairs.box(said), office_pairs.shown()], [office_pairs.box("end")])
    if func != "compare_spreadsheet" or ending != "xlsx" or not isinstance(task.evaluator.options, dict):
        return None
    name, first_cell, last_cell = position(task.evaluator.options)
    answers = {addresses.address(*place): f"{said} {at}" for at, place in enumerate((last_cell, first_cell))}
    cells = {"A1": "item", "B1": "price", "A2": "tea", "B2": 3.5}
    filled = cells | (answers if said != "start" else {})
    return office_pairs.book(filled, **({name: filled} if name else {}))


def drawn(said: str, kind: str) -> bytes:
    """A picture of two colours, the second in a corner, so that it is not its own mirror image."""
    out, seen = io.BytesIO(), hashlib.sha256(said.encode()).digest()
    picture = Image.new("RGB", (64, 48), tuple(seen[:3]))
    picture.paste(tuple(seen[3:6]), (0, 0, 20 + seen[6] % 12, 12 + seen[7] % 12))
    dates = {"creationDate": time.gmtime(0), "modDate": time.gmtime(0)} if kind == "PDF" else {}
    picture.save(out, kind, **dates)
    return out.getvalue()


def video(said: str, frames: int = 12) -> bytes:
    """A video of one picture (RIFF AVI, Motion JPEG), a frame a second."""
    picture = drawn(said, "JPEG")
    head = struct.pack("<14L", 1_000_000, 0, 0, 0, frames, 0, 1, len(picture), 64, 48, 0, 0, 0, 0)
    kind = struct.pack(
        "<4s4sLHHLLLLLLLLHHHH", b"vids", b"MJPG", 0, 0, 0, 0, 1, 1, 0, frames, len(picture), 0, 0, 0, 0, 64, 48
    )
    form = struct.pack("<LllHH4sLllLL", 40, 64, 48, 1, 24, b"MJPG", 64 * 48 * 3, 0, 0, 0, 0)
    stream = _chunk(b"LIST", b"strl" + _chunk(b"strh", kind) + _chunk(b"strf", form))
    heads = _chunk(b"LIST", b"hdrl" + _chunk(b"avih", head) + stream)
    return _chunk(b"RIFF", b"AVI " + heads + _chunk(b"LIST", b"movi" + _chunk(b"00dc", picture) * frames))


def _chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<L", len(data)) + data + b"\0" * (len(data) % 2)


def members(task: Task, said: str) -> dict[str, bytes]:
    """What the task names and no download brings: an archive holds it, wherever it is unpacked to."""
    text, found = dump(task).decode(), {"said.txt": said.encode()}
    wanted = {f"said.{kind}": drawn(said, form) for kind, form in ARCHIVED.items() if f'"file_type": "{kind}"' in text}
    if wanted and said == "gold":
        return wanted
    here = {file.path for file in brought(task)}
    for path in sorted({path.rstrip("/") for path in (*WHOLE.findall(text), *WITHIN.findall(text))}):
        if f"{HOME}/{path}" in here or path.endswith(PACKED):
            continue
        if profile := PROFILE.match(path):
            listed = f"[Profile0]\nName=own\nIsRelative=1\nPath={profile[2]}\nDefault=1\n"
            found[f"{profile[1]}/profiles.ini"] = listed.encode()
        file = path if "." in path.rpartition("/")[2].lstrip(".") else f"{path}/said.txt"
        parts = file.split("/")
        found |= {"/".join(parts[at:]): content(file, task) for at in range(len(parts))}
    return found


def packed(files: dict[str, bytes], how: str) -> bytes:
    if how not in ("gz", "xz"):
        return zipped(files)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz" if how == "gz" else "w:xz") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def standins(task: Task) -> dict[tuple[str, str], bytes]:
    """Each fixture of `task` by its URL and its name, with its stand-in. A URL of a file is one file."""
    start = {(file.url, file.path.rpartition("/")[2]) for file in brought(task)}
    found: dict[tuple[str, str], bytes] = {}
    for one in wanted_by(task):
        same = [data for (url, _), data in found.items() if url == one.url and names_a_file(url)]
        name, gold = one.name or one.url.rpartition("/")[2], (one.url, one.name) not in start
        found[one.url, one.name] = same[0] if same else content(name, task, gold=gold)
    return found


def laid(task: Task, folder: Path) -> int:
    """Put the stand-ins of `task` below `folder` as the published harness's cache has them; how many."""
    found = standins(task)
    for (url, called), data in found.items():
        place = folder / "cache" / task.id.rpartition("/")[2] / f"{uuid.uuid5(uuid.NAMESPACE_URL, url)}_{called}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return len(found)


if __name__ == "__main__":
    ids = store.ids(tasksets.set_of(sys.argv[1]))
    output.line(f"{sum(laid(tasks.task(one), Path(sys.argv[2])) for one in ids)} stand-ins in {sys.argv[2]}")
