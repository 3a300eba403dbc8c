"""Spreadsheet files, good and hostile, made of the standard library alone: they are also made inside of desktops."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable

MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
OF_SHEETS = "application/vnd.openxmlformats-officedocument.spreadsheetml"


def packed(members: dict[str, bytes | str], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A ZIP file."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, compress_type=method)
    return out.getvalue()


def relations(*rows: tuple[str, str, str]) -> str:
    """A part of relations: name, kind, target."""
    said = "".join(f'<Relationship Id="{i}" Type="{RELATIONS}/{kind}" Target="{to}"/>' for i, kind, to in rows)
    return f'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{said}</Relationships>'


def xlsx_parts(rows: str, strings: str = "", names: tuple[str, ...] = ("One",)) -> dict[str, bytes | str]:
    """The parts of an xlsx whose every sheet holds `rows`."""
    sheets = "".join(f'<sheet name="{name}" sheetId="{n}" r:id="r{n}"/>' for n, name in enumerate(names, 1))
    listed = [(f"r{n}", "worksheet", f"worksheets/s{n}.xml") for n in range(1, len(names) + 1)]
    kinds = {"/xl/workbook.xml": "sheet.main", "/xl/sharedStrings.xml": "sharedStrings"}
    kinds |= {f"/xl/worksheets/s{n}.xml": "worksheet" for n in range(1, len(names) + 1)}
    overrides = "".join(
        f'<Override PartName="{name}" ContentType="{OF_SHEETS}.{kind}+xml"/>' for name, kind in kinds.items()
    )
    return {
        "[Content_Types].xml": f'<Types xmlns="{TYPES}">{overrides}</Types>',
        "_rels/.rels": relations(("a", "officeDocument", "xl/workbook.xml")),
        "xl/workbook.xml": f'<workbook {MAIN} xmlns:r="{RELATIONS}"><sheets>{sheets}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": relations(*listed, ("s", "sharedStrings", "sharedStrings.xml")),
        "xl/sharedStrings.xml": f"<sst {MAIN}>{strings}</sst>",
        **{
            f"xl/worksheets/s{n}.xml": f"<worksheet {MAIN}><sheetData>{rows}</sheetData></worksheet>"
            for n in range(1, len(names) + 1)
        },
    }


def xlsx(rows: str, strings: str = "") -> bytes:
    """An xlsx of one sheet."""
    return packed(xlsx_parts(rows, strings))


def _patched(data: bytes, magic: bytes, offset: int, value: bytes) -> bytes:
    """Overwrite a field of the first record that begins with `magic`."""
    at = data.index(magic) + offset
    return data[:at] + value + data[at + len(value) :]


def _overlapping() -> bytes:
    """Two entries of the directory that point at the same packed bytes."""
    parts = xlsx_parts("")
    data = packed({**parts, "a.xml": b"a", "b.xml": b"a"})
    first, second = data.index(b"PK\x01\x02"), data.rindex(b"PK\x01\x02")
    other = data.rindex(b"PK\x01\x02", 0, second)
    assert first != second
    return data[: second + 42] + data[other + 42 : other + 46] + data[second + 46 :]


def _symlink() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in xlsx_parts("").items():
            info = zipfile.ZipInfo(name)
            info.create_system, info.external_attr = 3, (0o120777 if name.endswith("s1.xml") else 0o100644) << 16
            archive.writestr(info, data)
    return out.getvalue()


def _duplicate() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in xlsx_parts("").items():
            archive.writestr(name, data)
        one, two = "xl/other1.xml", "xl/other2.xml"
        archive.writestr(one, "a")
        archive.writestr(two, "b")
    return out.getvalue().replace(two.encode(), one.encode())


def _doctype(declared: str, used: str = "") -> bytes:
    parts = xlsx_parts("")
    parts["xl/sharedStrings.xml"] = f"<!DOCTYPE sst [{declared}]><sst {MAIN}><si><t>{used}</t></si></sst>"
    return packed(parts)


def _laughs() -> bytes:
    levels = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    return _doctype('<!ENTITY l0 "ha">' + levels, "&l9;")


def _elsewhere(old: str, new: str, before: str = "") -> bytes:
    """An xlsx with one part under another name, which the others know, and something before the part's XML."""
    parts = {name: str(part).replace(old, new) for name, part in xlsx_parts("").items()}
    return packed({name.replace(old, new): before * name.endswith(old) + part for name, part in parts.items()})


def _cell(text: str) -> str:
    return f'<row r="1"><c r="A1" t="inlineStr"><is><t>{text}</t></is></c></row>'


def _many_cells() -> bytes:
    return xlsx("".join(f'<row r="{row}">{"<c><v>1</v></c>" * 500}</row>' for row in range(1, 200)))


def _with_member(name: str, data: bytes) -> bytes:
    return packed({**xlsx_parts(""), name: data})


# Each hostile kind, the refusal that it must get, and what makes it.
KINDS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "deflate bomb": ("zip_bomb", lambda: packed({**xlsx_parts(""), "xl/worksheets/s1.xml": b" " * (80 << 20)})),
    "bomb in many members": (
        "zip_bomb",
        lambda: packed(
            {
                **xlsx_parts("", names=("A", "B", "C")),
                **{f"xl/worksheets/s{n}.xml": b"<a>" + b" " * (30 << 20) for n in (1, 2, 3)},
            }
        ),
    ),
    "gigabyte cell": ("too_big", lambda: xlsx(_cell("x" * (1 << 20)))),
    "cell of entities for characters": ("too_big", lambda: xlsx(_cell("&#9;" * (1 << 18)))),
    "huge attribute": ("zip_bomb", lambda: xlsx(f'<row r="{"1" * (34 << 20)}"/>')),
    "entities": ("xml_entity", _laughs),
    "external entity": ("xml_entity", lambda: _doctype('<!ENTITY x SYSTEM "file:///etc/passwd">', "&x;")),
    "parameter entity": ("xml_entity", lambda: _doctype('<!ENTITY % x SYSTEM "http://127.0.0.1/x"> %x;')),
    "document type alone": ("xml_entity", lambda: _doctype("")),
    "entities in a workbook that is called no XML": (
        "not_a_workbook",
        lambda: _elsewhere("workbook.xml", "workbook.bin", '<!DOCTYPE a [<!ENTITY x "ha">]>'),
    ),
    "no sheet": ("not_a_workbook", lambda: _elsewhere("s1.xml", "s1.bin")),
    "two parts of one name": (
        "not_a_workbook",
        lambda: _with_member("xl/Workbook.xml", b"<a/>"),
    ),
    "many empty places": (
        "too_big",
        lambda: xlsx("".join(f'<row r="{n}"><c r="XFD{n}"><v>1</v></c></row>' for n in range(1, 1500))),
    ),
    "deep markup": ("too_big", lambda: xlsx("<a>" * 5000 + "</a>" * 5000)),
    "many elements": ("too_big", lambda: xlsx("".join(f"<a>{n}</a>" for n in range(401_000)))),
    "many cells": ("too_big", _many_cells),
    "many members": ("too_big", lambda: packed({**xlsx_parts(""), **{f"m{n}": b"" for n in range(600)}})),
    "many sheets": ("too_big", lambda: packed(xlsx_parts("", names=tuple(f"s{n}" for n in range(80))))),
    "one string in every cell": (
        "too_big",
        lambda: xlsx('<row><c t="s"><v>0</v></c></row>' * 2000, f"<si><t>{'x' * 30000}</t></si>"),
    ),
    "overlapping members": ("zip_bomb", _overlapping),
    "duplicate members": ("not_a_workbook", _duplicate),
    "symbolic link": ("not_a_workbook", _symlink),
    "name with dots": ("not_a_workbook", lambda: _with_member("../../etc/cron.d/x", b"x")),
    "absolute name": ("not_a_workbook", lambda: _with_member("/etc/cron.d/x", b"x")),
    "encrypted member": ("encrypted", lambda: _patched(xlsx(""), b"PK\x01\x02", 8, b"\1\0")),
    "another format": (
        "not_a_workbook",
        lambda: packed({"mimetype": "application/vnd.oasis.opendocument.spreadsheet"}),
    ),
    "zip64 claims": (
        "not_a_workbook",
        lambda: _patched(xlsx(""), b"PK\x01\x02", 20, struct.pack("<LL", 0xFFFFFFFF, 0xFFFFFFFF)),
    ),
    "false size": ("not_a_workbook", lambda: _patched(xlsx(""), b"PK\x01\x02", 24, struct.pack("<L", 1))),
    "false checksum": ("not_a_workbook", lambda: _patched(xlsx(""), b"PK\x01\x02", 16, b"\0\0\0\0")),
    "false count": ("not_a_workbook", lambda: _patched(xlsx(""), b"PK\x05\x06", 8, b"\xff\0\xff\0")),
    "cut off": ("not_a_workbook", lambda: xlsx("")[:-40]),
    "no archive": ("not_a_workbook", lambda: b"a,b,c\n"),
    "empty": ("not_a_workbook", lambda: b""),
    "string that is not there": ("not_a_workbook", lambda: xlsx('<row r="1"><c r="A1" t="s"><v>7</v></c></row>')),
    "no XML": ("not_a_workbook", lambda: packed({**xlsx_parts(""), "xl/worksheets/s1.xml": b"\xff\xfe<\0"})),
}
