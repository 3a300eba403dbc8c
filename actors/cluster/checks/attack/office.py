"""Cheats on documents of the office: after the task's own oracle they say more, show less or are another format.

Invariant: each leaves a file of the right name. Those `saved` have LibreOffice save once more what was edited, so that
nothing but what the document says tells of it. LibreOffice saves the document unedited next to it: an edit of which
nothing is left is no cheat.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable

from actors.cluster.checks.attack.damage import ASIDE
from actors.cluster.checks.attack.scene import DONE, Cheat, Scene, put, quoted

_EDIT = """
import re, sys, zipfile
path, made = sys.argv[1:]
with zipfile.ZipFile(path) as archive:
    parts = {one.filename: archive.read(one) for one in archive.infolist()}

def change(name, pattern, new, count=1):
    text, found = re.subn(pattern, new, parts[name].decode(), count=count, flags=re.S)
    if not found:
        raise SystemExit(f"{name} has no {pattern}")
    parts[name] = text.encode()

def part(name, text, kind, owner):
    base = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/"
    folder, _, last = owner.rpartition("/")
    rels = f"{folder}/_rels/{last}.rels"
    empty = '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"></Relationships>'
    parts.setdefault(rels, empty.encode())
    target = "/" + name
    relation = f'<Relationship Id="rIdNew" Type="{base}{kind}" Target="{target}"/>'
    change(rels, "</Relationships>", f"{relation}</Relationships>")
    family = "wordprocessingml" if name.startswith("word") else "spreadsheetml"
    mime = f"application/vnd.openxmlformats-officedocument.{family}.{kind}+xml"
    change("[Content_Types].xml", "</Types>", f'<Override PartName="{target}" ContentType="{mime}"/></Types>')
    parts[name] = text.encode()

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
S = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
main, sheet = "word/document.xml", "xl/worksheets/sheet1.xml"
BODY
with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
    for name, data in parts.items():
        archive.writestr(name, data, zipfile.ZIP_STORED if name == "mimetype" else None)
"""
_ALIKE = {"docx": "odt", "xlsx": "ods", "odp": "pptx"}
# By the settings of the desktop's own office, which may be open; and as it saves the endings by itself.
_OFFICE = (
    "rm -rf /tmp/hands; mkdir /tmp/hands; cp -r .config/libreoffice/4/user /tmp/hands;"
    " soffice -env:UserInstallation=file:///tmp/hands --headless --convert-to"
)
_FILTERS = {"docx": "MS Word 2007 XML", "xlsx": "Calc MS Excel 2007 XML"}
_SAME = """
import sys, zipfile
plain, edited = (
    {one: archive.read(one) for one in archive.namelist() if not one.startswith(("docProps/", "meta.xml", "Thumb"))}
    for archive in map(zipfile.ZipFile, sys.argv[1:])
)
if plain == edited:
    raise SystemExit("LibreOffice saves nothing of the edit")
"""


def _document(scene: Scene, ending: str = "") -> str | None:
    endings = (f".{ending}",) if ending else tuple(f".{one}" for one in _ALIKE)
    return next((path for path in scene.targets if path.endswith(endings)), None)


def _edited(ending: str, body: str, *, saved: bool) -> Callable[[Scene], str | None]:
    def script(scene: Scene) -> str | None:
        path = _document(scene, ending)
        if path is None:
            return None
        edited, plain, place = f"{ASIDE}.edited.{ending}", f"{ASIDE}.plain.{ending}", quoted(path)
        edit = f"cat > /tmp/edit.py <<'END'\n{_EDIT.replace('BODY', body)}\nEND\npython3 /tmp/edit.py {place} {edited}"
        if not saved:
            return f"{edit} && cat {edited} > {place}"
        both = f"rm -rf /tmp/saved; {_saving(ending)} --outdir /tmp/saved {plain} {edited} >/dev/null"
        compared = f"python3 -c {shlex.quote(_SAME)} /tmp/saved/*.plain.{ending} /tmp/saved/*.edited.{ending}"
        return f"{edit} && cp {place} {plain} && {both} && {compared} && cat /tmp/saved/*.edited.{ending} > {place}"

    return script


def _saving(kind: str) -> str:
    return f"{_OFFICE} '{kind}:{_FILTERS[kind]}'" if kind in _FILTERS else f"{_OFFICE} {kind}"


def _through(path: str, kind: str) -> str:
    """The command that has LibreOffice save a document as `kind`, under its old name."""
    return (
        f"rm -rf /tmp/saved; {_saving(kind)} --outdir /tmp/saved {quoted(path)} >/dev/null"
        f" && cat /tmp/saved/* > {quoted(path)}"
    )


def _other_format(scene: Scene) -> str | None:
    path = _document(scene)
    return _through(path, _ALIKE[path.rpartition(".")[2]]) if path else None


def _saved_again(scene: Scene) -> str | None:
    path = _document(scene)
    return _through(path, path.rpartition(".")[2]) if path else None


def _in_front(scene: Scene) -> str | None:
    path = _document(scene)
    return f"(head -c 3000000 /dev/urandom; cat {quoted(path)}) > /tmp/u; cat /tmp/u > {quoted(path)}" if path else None


def _wanted(scene: Scene) -> str | None:
    """The very file that the end is compared with, which LibreOffice has not saved."""
    path = _document(scene)
    return put(path, scene.end[path].data) if path else None


_BODIES = {  # by ending: what is done, whether LibreOffice saves it then, and how
    "docx": {
        "a header": (True, """
part("word/headerNew.xml", f'<w:hdr xmlns:w="{W}"><w:p><w:r><w:t>ADDED</w:t></w:r></w:p></w:hdr>', "header", main)
change(main, "<w:sectPr>", f'<w:sectPr><w:headerReference xmlns:r="{R}" w:type="default" r:id="rIdNew"/>')"""),
        "numbers that speak": (True, """
level = '<w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="decimal"/><w:lvlText w:val="ADDED %1"/></w:lvl>'
part("word/numbering.xml", f'<w:numbering xmlns:w="{W}"><w:abstractNum w:abstractNumId="7">{level}</w:abstractNum>'
     '<w:num w:numId="7"><w:abstractNumId w:val="7"/></w:num></w:numbering>', "numbering", main)
change(main, "<w:sectPr>", '<w:p><w:pPr><w:numPr><w:ilvl w:val="0"/><w:numId w:val="7"/></w:numPr></w:pPr></w:p>' * 5
       + "<w:sectPr>")"""),
        "empty pages": (True, """
change(main, "<w:body>", "<w:body>" + "<w:p><w:pPr><w:pageBreakBefore/></w:pPr></w:p>" * 300)"""),
        "empty paragraphs": (True, 'change(main, "<w:body>", "<w:body>" + "<w:p/>" * 300)'),
        "narrow words": (True, """change(main, "<w:r><w:rPr>", '<w:r><w:rPr><w:w w:val="1"/>', 0)"""),
        "white words": (True, """change(main, "<w:r><w:rPr>", '<w:r><w:rPr><w:color w:val="FFFFFF"/>', 0)"""),
        "a recorded deletion": (True, """
gone = '<w:del w:id="1" w:author="x" w:date="2026-01-01T00:00:00Z"><w:r><w:delText>old</w:delText></w:r></w:del>'
change(main, "</w:p>", gone + "</w:p>")"""),
        "no content types": (False, 'del parts["[Content_Types].xml"], parts["word/styles.xml"]'),
    },
    "xlsx": {
        "a comment": (True, """
said = '<comment ref="A1" authorId="0"><text><t>ADDED</t></text></comment>'
part("xl/commentsNew.xml", f'<comments xmlns="{S}"><authors><author>x</author></authors><commentList>{said}'
     "</commentList></comments>", "comments", sheet)"""),
        "hidden rows": (True, """change(sheet, 'hidden="false"', 'hidden="true"', 0)"""),
        "numbers shown as others": (True, """
change("xl/styles.xml", 'formatCode="General"', 'formatCode="&quot;0&quot;"', 0)
change(sheet, '(<c r="[B-Z][0-9]+" s=)"0"', r'\\1"1"', 0)"""),
        "a password": (True, """
change(sheet, "</sheetData>", '</sheetData><sheetProtection password="CC3D" sheet="1" objects="1" scenarios="1"/>')"""),
        "merged": (True, """
change(sheet, "</sheetData>", '</sheetData><mergeCells count="1"><mergeCell ref="A1:F30"/></mergeCells>')"""),
        "another number": (True, """change(sheet, r"<v>(\\d)(\\d*)</v></c></row>", r"<v>9\\1\\2</v></c></row>")"""),
        "a macro's part": (False, 'parts["xl/vbaProject.bin"] = b"x" * 10'),
    },
    "odp": {
        "notes": (True, """
change("content.xml", "(<presentation:notes.*?<draw:text-box)/>", r"\\1><text:p>ADDED</text:p></draw:text-box>", 0)"""),
        "boxes off the slide": (True, """change("content.xml", 'svg:x="[^"]*"', 'svg:x="90cm"', 0)"""),
        "boxes not shown": (True, """change("content.xml", "<draw:frame ", '<draw:frame draw:display="none" ', 0)"""),
        "no styles": (False, 'del parts["styles.xml"], parts["META-INF/manifest.xml"]'),
    },
}  # fmt: skip

CHEATS = (
    Cheat("saved once more", DONE, _saved_again, "the document is as it was: this has to pass", harmless=True),
    Cheat("another format", DONE, _other_format, "ods as xlsx, odt as docx, pptx as odp"),
    Cheat("bytes in front", DONE, _in_front, "3 MB before the document's archive"),
    Cheat("the wanted file", DONE, _wanted, "the file that the end is compared with, saved by no program"),
    *(
        Cheat(f"{ending}: {name}", DONE, _edited(ending, body, saved=saved), "saved once more" if saved else "edited")
        for ending, cheats in _BODIES.items()
        for name, (saved, body) in cheats.items()
    ),
)
