"""Files for `published_cases.py`, made by others' libraries. A file is its name and its bytes in base64."""

from __future__ import annotations

import base64
import io
import zipfile
from collections.abc import Callable
from typing import Any

from docx import Document
from docx.enum.text import WD_TAB_ALIGNMENT
from docx.oxml import OxmlElement
from docx.shared import Pt
from PIL import Image, ImageDraw
from pptx import Presentation
from pptx.dml.color import RGBColor
from pptx.util import Inches
from pypdf import PdfWriter


def file(name: str, data: bytes | str) -> dict[str, str]:
    return {"name": name, "data": base64.b64encode(data.encode() if isinstance(data, str) else data).decode()}


def docx(*paragraphs: str, change: Callable[[Any], None] = lambda _: None, name: str = "a.docx") -> dict[str, str]:
    made, out = Document(), io.BytesIO()
    for text in paragraphs:
        made.add_paragraph(text)
    change(made)
    made.save(out)
    return file(name, out.getvalue())


def spaced(*spacing: float) -> Callable[[Any], None]:
    def change(made: Any) -> None:
        for paragraph, value in zip(made.paragraphs, spacing, strict=False):
            paragraph.paragraph_format.line_spacing = value

    return change


def pictured(data: bytes) -> Callable[[Any], None]:
    return lambda made: made.paragraphs[0].add_run().add_picture(io.BytesIO(data))


def looked(change: Callable[[Any], None]) -> Callable[[Any], None]:
    return lambda made: change(made.paragraphs[0].runs[0])


def italic(size: int) -> Callable[[Any], None]:
    def change(run: Any) -> None:
        run.italic, run.font.size = True, Pt(size)

    return looked(change)


def marked(color: Any) -> Callable[[Any], None]:
    def change(run: Any) -> None:
        run.font.highlight_color = color

    return looked(change)


def equation(made: Any) -> None:
    made.paragraphs[0].runs[0]._r.append(OxmlElement("w:object"))


def footed(text: str) -> Callable[[Any], None]:
    def change(made: Any) -> None:
        made.sections[0].footer.paragraphs[0].text = text

    return change


def numbered_footer(made: Any) -> None:
    """A field of page numbers as LibreOffice writes it."""
    line = made.sections[0].footer.paragraphs[0]
    for kind, text in (("begin", ""), ("", " PAGE "), ("separate", ""), ("said", "1"), ("end", "")):
        run = line.add_run(text if kind == "said" else "")
        part = OxmlElement("w:fldChar" if kind else "w:instrText")
        if kind:
            part.set(f"{{{W}}}fldCharType", kind)
        part.text = text
        if kind != "said":
            run._r.append(part)


def tabbed(at: int) -> Callable[[Any], None]:
    def change(made: Any) -> None:
        made.paragraphs[0].paragraph_format.tab_stops.add_tab_stop(Pt(at), WD_TAB_ALIGNMENT.RIGHT)

    return change


def pptx(change: Callable[[Any], None], name: str = "a.pptx") -> dict[str, str]:
    made, out = Presentation(), io.BytesIO()
    made.slides.add_slide(made.slide_layouts[5])
    change(made)
    made.save(out)
    return file(name, out.getvalue())


def filled(red: int, green: int, blue: int) -> Callable[[Any], None]:
    def change(made: Any) -> None:
        fill = made.slides[0].background.fill
        fill.solid()
        fill.fore_color.rgb = RGBColor(red, green, blue)

    return change


def struck(strike: bool) -> Callable[[Any], None]:
    def change(made: Any) -> None:
        made.slides[0].shapes.title.text = "said"
        if strike:
            made.slides[0].shapes.title.text_frame.paragraphs[0].runs[0].font._element.set("strike", "sngStrike")

    return change


def stretched(whole: bool) -> Callable[[Any], None]:
    def change(made: Any) -> None:
        shapes, size = made.slides[0].shapes, (made.slide_width, made.slide_height)
        shapes.add_picture(io.BytesIO(RED), 0, 0, *(size if whole else (Inches(1), Inches(1))))

    return change


def moved(kind: str) -> Callable[[Any], None]:
    def change(made: Any) -> None:
        transition = made.slides[0]._element.makeelement(f"{{{P}}}transition", {})
        transition.append(transition.makeelement(f"{{{P}}}{kind}", {}))
        made.slides[0]._element.insert(1, transition)

    return change


def mastered(color: str) -> Callable[[Any], None]:
    """Slide numbers of the master in a colour; a slide that shows its own."""

    def change(made: Any) -> None:
        for number in ("111111", color, "222222"):
            fill = OxmlElement("a:solidFill")
            value = OxmlElement("a:srgbClr")
            value.set("val", number)
            fill.append(value)
            made.slide_master._element.append(fill)

    return change


def numbered(red: bool) -> Callable[[Any], None]:
    """A slide that shows its number, and the master's placeholder of numbers in a colour."""

    def change(made: Any) -> None:
        made.slides[0].shapes.title.text = "1"
        for shape in made.slide_master.placeholders:
            if shape.placeholder_format.type == 13:
                shape.text_frame.text = "<number>"
                shape.text_frame.paragraphs[0].font.color.rgb = RGBColor(255, 0, 0) if red else RGBColor(0, 0, 255)

    return change


def picture(
    color: tuple[int, ...],
    *,
    change: Callable[[Any], Any] = lambda image: image,
    mode: str = "RGB",
    box: tuple[int, ...] = (),
) -> bytes:
    made, out = Image.new(mode, (64, 64), color), io.BytesIO()
    ImageDraw.Draw(made).rectangle((8, 8, 30, 40), fill=box or (0,) * len(color))
    change(made).save(out, "PNG")
    return out.getvalue()


def zipped(name: str, files: dict[str, str]) -> dict[str, str]:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return file(name, out.getvalue())


def tar(name: str, how: str) -> dict[str, str]:
    import tarfile

    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=how) as archive:
        member = tarfile.TarInfo("a")
        member.size = 1
        archive.addfile(member, io.BytesIO(b"x"))
    return file(name, out.getvalue())


def pictures(color: str, name: str = "a.pdf", mode: str = "RGB") -> dict[str, str]:
    """A PDF of a picture alone: packed with loss, or as `mode` "P" without."""
    out = io.BytesIO()
    Image.new("RGB", (64, 64), color).convert(mode).save(out, "PDF")
    return file(name, out.getvalue())


def mp3(artist: str) -> dict[str, str]:
    from mutagen.id3 import ID3, TPE1

    tags, out = ID3(), io.BytesIO()
    tags.add(TPE1(encoding=3, text=artist))
    tags.save(out)
    return file("a.mp3", out.getvalue() + bytes(4))


def pdf(text: str, drawn: str = "", name: str = "a.pdf") -> dict[str, str]:
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    writer, out = PdfWriter(), io.BytesIO()
    page = writer.add_blank_page(300, 300)
    font = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    fonts = DictionaryObject({NameObject(key): NameObject(value) for key, value in font.items()})
    page[NameObject("/Resources")] = DictionaryObject(
        {NameObject("/Font"): DictionaryObject({NameObject("/F"): fonts})}
    )
    content = DecodedStreamObject()
    content.set_data((drawn or f"BT /F 12 Tf 20 200 Td ({text}) Tj ET").encode())
    page[NameObject("/Contents")] = writer._add_object(content)
    writer.write(out)
    return file(name, out.getvalue())


def workbook(*rows: list[Any]) -> dict[str, str]:
    from openpyxl import Workbook

    made, out = Workbook(), io.BytesIO()
    for row in rows:
        made.active.append(row)
    made.save(out)
    return file("a.xlsx", out.getvalue())


def package(change: Callable[[Any], None], name: str = "a.xlsx") -> dict[str, str]:
    from openpyxl import Workbook

    made, out = Workbook(), io.BytesIO()
    change(made.active)
    made.save(out)
    return file(name, out.getvalue())


def cell(value: Any) -> Callable[[Any], None]:
    def change(sheet: Any) -> None:
        sheet["A1"] = value

    return change


def split(sheet: Any) -> None:
    frozen(sheet)
    sheet.sheet_view.pane.state = "split"


def frozen(sheet: Any) -> None:
    sheet["A1"], sheet.freeze_panes = "a", "B2"


def tabled(*said: str) -> Callable[[Any], None]:
    def change(made: Any) -> None:
        grid = made.add_table(1, len(said))
        for at, text in enumerate(said):
            grid.cell(0, at).text = text

    return change


def lowered(text: str) -> Callable[[Any], None]:
    def change(made: Any) -> None:
        made.paragraphs[0].add_run(text).font.subscript = True

    return change


def shaped(change: Callable[[Any], None], *said: str) -> dict[str, str]:
    """A text document whose last paragraph is changed."""
    return docx(*said, change=lambda made: change(made.paragraphs[-1]))


def colored(made: Any, first: str = "at") -> None:
    from docx.shared import RGBColor as Color

    grid = made.add_table(1, 2)
    for at, (text, color) in enumerate(((first, Color(255, 0, 0)), ("by", Color(0, 0, 255)))):
        grid.cell(0, at).paragraphs[0].add_run(text).font.color.rgb = color


def upright(made: Any) -> None:
    made.slide_width, made.slide_height = Inches(5), Inches(9)


def titled(text: str, color: str = "", theme: Any = None) -> Callable[[Any], None]:
    def change(made: Any) -> None:
        made.slides[0].shapes.title.text = text
        run = made.slides[0].shapes.title.text_frame.paragraphs[0].runs[0]
        if color:
            run.font.color.rgb = RGBColor.from_string(color)
        if theme:
            run.font.color.theme_color = theme

    return change


def linked(made: Any) -> None:
    """A field's code, which is no text of the document: some programs write it, others do not."""
    code = OxmlElement("w:instrText")
    code.text = "HYPERLINK one two three four five six"
    made.paragraphs[0].add_run()._r.append(code)


def linked_last(struck: bool) -> Callable[[Any], None]:
    """A last paragraph that is a link alone."""

    def change(made: Any) -> None:
        last = made.paragraphs[-1]
        for run in last.runs:
            run.font.strike = struck
        link = OxmlElement("w:hyperlink")
        link.extend(run._r for run in last.runs)
        last._p.append(link)

    return change


def holed(data: bytes) -> bytes:
    """A picture with a transparent part, larger than the triangle, at its left."""
    made, out = Image.open(io.BytesIO(data)).convert("RGBA"), io.BytesIO()
    made.paste((0, 0, 0, 0), (0, 0, 18, 60))
    made.save(out, "PNG")
    return out.getvalue()


def gridded(*said: str) -> Callable[[Any], None]:
    """A table on the first slide."""

    def change(made: Any) -> None:
        table = made.slides[0].shapes.add_table(1, len(said), 0, 0, Inches(3), Inches(1)).table
        for at, text in enumerate(said):
            table.cell(0, at).text = text

    return change


def odt(text: str, color: str = "", name: str = "a.odt", heading: str = "") -> dict[str, str]:
    from odf.opendocument import OpenDocumentText
    from odf.style import Style, TextProperties
    from odf.text import H, P, Span

    made, out = OpenDocumentText(), io.BytesIO()
    look = Style(name="T1", family="text")
    if color:
        look.addElement(TextProperties(backgroundcolor=color))
    made.automaticstyles.addElement(look)
    paragraph = P()
    paragraph.addElement(Span(stylename=look, text=text))
    if heading:
        made.text.addElement(H(outlinelevel=1, text=heading))
    made.text.addElement(paragraph)
    made.save(out)
    return file(name, out.getvalue())


def sqlite(*values: int) -> dict[str, str]:
    import sqlite3

    made = sqlite3.connect(":memory:")
    made.execute("create table a (b)")
    made.executemany("insert into a values (?)", [(value,) for value in values])
    made.commit()
    return file("a.sqlite", made.serialize())


def setting_item(name: str, value: str, path: str = "Common/Save/Document") -> str:
    prop = f'<prop oor:name="{name}" oor:op="fuse"><value>{value}</value></prop>'
    return f'<item oor:path="/org.openoffice.Office.{path}">{prop}</item>'


def setting(path: str, name: str, value: str) -> dict[str, str]:
    return file("a.xcu", XCU.format(setting_item(name, value, path)))


def triangle(left: int, *, left_alone: bool = False) -> bytes:
    """A triangle, and in the middle what the published metric takes for it, where it is `left_alone`."""
    made, out = Image.new("RGB", (60, 60), "white"), io.BytesIO()
    across = 5 if left_alone else left
    ImageDraw.Draw(made).polygon([(across, 40), (across + 20, 40), (across + 10, 10)], fill="black")
    for at in ((30, 30), (30, 31)) if left_alone else ():
        made.putpixel(at, (0, 0, 255))
    made.putpixel((59, 59), (255, 0, 0))  # the published metric takes the second rarest colour for the triangle's
    made.save(out, "PNG")
    return out.getvalue()


def clock(minutes: int) -> str:
    import datetime

    return (datetime.datetime.now() + datetime.timedelta(minutes=minutes)).strftime("%H:%M")


W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
XCU = '<oor:items xmlns:oor="http://openoffice.org/2001/registry">{}</oor:items>'
P = "http://schemas.openxmlformats.org/presentationml/2006/main"
RED, BLUE = picture((255, 0, 0)), picture((0, 0, 255))
GREY = picture((150, 130, 130))
LINES = ("10:00:00, 7, a, 1", "10:01:00, 8, a, 1", "10:02:00, 7, b, 1")
TREE = '<desktop><application name="a"><label name="b">{}</label></application></desktop>'
PANE = '<desktop><document-frame name="{}"/></desktop>'
LOCALE = (
    '<oor:items xmlns:oor="http://openoffice.org/2001/registry"><item oor:path="/org.openoffice.Setup/L10N">'
    '<prop oor:name="ooSetupSystemLocale"><value>{}</value></prop></item></oor:items>'
)
