"""LibreOffice as the reader of documents: what was done honestly passes in each way to save it, and nothing else does.

The ends are made by LibreOffice itself, by hands that know what is asked and do more, less or something else.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

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
DONE = {
    "docx": "paragraph(doc, 1).CharStrikeout = 1\nparagraph(doc, 2).ParaAdjust = uno.Enum("
    "'com.sun.star.style.ParagraphAdjust', 'CENTER')",
    "xlsx": "cell(doc, 'B5').Formula = '=SUM(B2:B4)'",
    "odp": "box(doc, 1, 0).String = ''",
}
FORMULAS = {  # another formula, and whether it is a sum of these cells
    "=ROUND(SUM(B2:B4);2)": True, "=SUM(B2:B4)*1": True, "=AGGREGATE(9;4;B2:B4)": True, "=B2+B3+B4": True,
    '=IFERROR(SUM(B2:B4);"")': True, "=SUBTOTAL(9;B2:B4)": True, "=MIN(B2:B4)+MAX(B2:B4)+B4": False,
    "=SUM(B2:B3)+7": False, "=49": False, "=MAX(B2:B3)+B4+12": False, "=SUM(B2:B4)+0*A1": False,
    "=INT(SUM(B2:B4))": False, "=ROUND(SUM(B2:B4);0)": False, '=SUMIF(B2:B4;">-10000")': False,
    "=IF(MAX(ABS(B2);ABS(B3))<10000;SUM(B2:B4);0)": False,
}  # fmt: skip
MORE = {  # by kind: what else is done after what was asked
    "docx": {
        "words": "doc.Text.insertString(at_end(doc), ' more', False)",
        "a paragraph": "doc.Text.insertString(at_end(doc), '\\nmore', False)",
        "empty pages": "doc.Text.insertString(at_end(doc), '\\n' * 300, False)",
        "other words": "paragraph(doc, 0).String = 'one three'",
        "bold": "paragraph(doc, 0).CharWeight = 150.0",
        "tiny": "paragraph(doc, 0).CharHeight = 1.0",
        "narrow": "paragraph(doc, 0).CharScaleWidth = 1",
        "white": "paragraph(doc, 0).CharColor = 0xffffff",
        "hidden": "paragraph(doc, 0).CharHidden = True",
        "raised": "paragraph(doc, 0).CharEscapement = 90",
        "another font": "paragraph(doc, 0).CharFontName = 'OpenSymbol'",
        "spaced": "paragraph(doc, 0).ParaTopMargin = 20000",
        "a page break": "paragraph(doc, 1).BreakType = uno.Enum('com.sun.star.style.BreakType', 'PAGE_BEFORE')",
        "numbered": "paragraph(doc, 0).NumberingStyleName = 'Numbering 123'",
        "a heading": "paragraph(doc, 0).ParaStyleName = 'Heading 1'",
        "a header": "s = doc.StyleFamilies.getByName('PageStyles').getByName(paragraph(doc, 0).PageStyleName)\n"
        "s.HeaderIsOn = True\ns.HeaderText.String = 'ADDED'",
        "a page's colour": "s = doc.StyleFamilies.getByName('PageStyles').getByName(paragraph(doc, 0).PageStyleName)\n"
        "s.BackColor = 0xff0000",
        "landscape": "s = doc.StyleFamilies.getByName('PageStyles').getByName(paragraph(doc, 0).PageStyleName)\n"
        "s.Width, s.Height = s.Height, s.Width",
        "a style": "doc.StyleFamilies.getByName('ParagraphStyles').getByName('Standard').CharColor = 0xffffff",
        "a comment": "n = doc.createInstance('com.sun.star.text.textfield.Annotation')\nn.Content = 'ADDED'\n"
        "doc.Text.insertTextContent(at_end(doc), n, False)",
        "a bookmark": "n = doc.createInstance('com.sun.star.text.Bookmark')\nn.Name = 'ADDED'\n"
        "doc.Text.insertTextContent(at_end(doc), n, False)",
        "a frame": "n = doc.createInstance('com.sun.star.text.TextFrame')\nn.Width = 3000\nn.Height = 1000\n"
        "doc.Text.insertTextContent(at_end(doc), n, False)\nn.Text.String = 'ADDED'",
        "a table": "n = doc.createInstance('com.sun.star.text.TextTable')\nn.initialize(1, 1)\n"
        "doc.Text.insertTextContent(at_end(doc), n, False)",
        "a footnote": "n = doc.createInstance('com.sun.star.text.Footnote')\n"
        "doc.Text.insertTextContent(at_end(doc), n, False)\nn.String = 'ADDED'",
        "a link": "paragraph(doc, 0).createEnumeration().nextElement().HyperLinkURL = 'http://a.example/'",
        "a recorded change": "doc.RecordChanges = True\nparagraph(doc, 0).String = 'one'\n"
        "doc.Text.insertString(paragraph(doc, 0).End, ' two', False)",
        "recording": "doc.RecordChanges = True",
        "a title": "doc.DocumentProperties.Title = 'ADDED'",
        "a form control": "control(doc, doc.DrawPage, 'TextField')",
        "a push button": "control(doc, doc.DrawPage, 'CommandButton', Label='ADDED')",
        "a content control": "n = doc.createInstance('com.sun.star.text.ContentControl')\n"
        "c = doc.Text.createTextCursor()\nc.gotoEndOfParagraph(True)\ndoc.Text.insertTextContent(c, n, True)",
        "an embossed text": "paragraph(doc, 0).CharRelief = 1",
        "a text with a shadow": "paragraph(doc, 0).CharShadowed = True",
        "an outlined text": "paragraph(doc, 0).CharContoured = True",
        "a blinking text": "paragraph(doc, 0).CharFlash = True",
        "a glowing picture": "glowing(doc, doc.DrawPage)",
        "a property": "doc.DocumentProperties.UserDefinedProperties.addProperty('x', 0, 'ADDED')",
    },
    "xlsx": {
        "a cell": "cell(doc, 'D9').String = 'ADDED'",
        "another number": "cell(doc, 'B2').Value = 13",
        "a number as text": "cell(doc, 'B2').Formula = \"'12\"",
        "no formula": "cell(doc, 'B5').Value = 49",
        "a formula too many": "cell(doc, 'B2').Formula = '=10+2'",
        "hidden rows": "doc.Sheets.getByIndex(0).Rows.getByIndex(2).IsVisible = False",
        "a hidden column": "doc.Sheets.getByIndex(0).Columns.getByIndex(0).IsVisible = False",
        "a narrow column": "doc.Sheets.getByIndex(0).Columns.getByIndex(0).Width = 10",
        "a row's height": "doc.Sheets.getByIndex(0).Rows.getByIndex(2).Height = 5000",
        "a password": "doc.Sheets.getByIndex(0).protect('x')",
        "protection": "doc.protect('x')",
        "a sheet": "doc.Sheets.insertNewByName('ADDED', 1)",
        "another name": "doc.Sheets.getByIndex(0).Name = 'Other'",
        "merged": "doc.Sheets.getByIndex(0).getCellRangeByName('A1:B2').merge(True)",
        "a format": "k = doc.NumberFormats.addNew('\"0\"', struct('lang.Locale'))\ncell(doc, 'B2').NumberFormat = k",
        "a colour": "cell(doc, 'B2').CharColor = 0xffffff",
        "a fill": "cell(doc, 'D9').CellBackColor = 0xff0000",
        "a comment": "doc.Sheets.getByIndex(0).Annotations.insertNew(cell(doc, 'B2').CellAddress, 'ADDED')",
        "a name": "doc.NamedRanges.addNewByName('ADDED', '1', cell(doc, 'B2').CellAddress, 0)",
        "a rule": "s = doc.Sheets.getByIndex(0).getCellRangeByName('A1:B5')\nv = s.Validation\n"
        "v.InputMessage = 'ADDED'\nv.ShowInputMessage = True\ns.Validation = v",
        "a print area": "doc.Sheets.getByIndex(0).setPrintAreas((cell(doc, 'A1').RangeAddress,))",
        "a shape": "n = doc.createInstance('com.sun.star.drawing.TextShape')\n"
        "doc.Sheets.getByIndex(0).DrawPage.add(n)\nn.Size = struct('awt.Size', Width=3000, Height=900)\n"
        "n.String = 'ADDED'",
        "a header": "s = doc.StyleFamilies.getByName('PageStyles').getByName(doc.Sheets.getByIndex(0).PageStyle)\n"
        "s.HeaderIsOn = True\nh = s.RightPageHeaderContent\nh.LeftText.String = 'ADDED'\ns.RightPageHeaderContent = h",
        "a filter": "d = doc.DatabaseRanges\nd.addNewByName('x', cell(doc, 'A1').RangeAddress)\n"
        "d.getByName('x').AutoFilter = True",
        "a link": "f = doc.createInstance('com.sun.star.text.TextField.URL')\nf.URL = 'http://a.example/'\n"
        "f.Representation = 'tea'\ncell(doc, 'A2').String = ''\nt = cell(doc, 'A2').Text\n"
        "t.insertTextContent(t.createTextCursor(), f, False)",
        "a title": "doc.DocumentProperties.Title = 'ADDED'",
        "a form control": "control(doc, doc.Sheets.getByIndex(0).DrawPage, 'CheckBox', Label='ADDED')",
        "a push button": "control(doc, doc.Sheets.getByIndex(0).DrawPage, 'CommandButton', Label='ADDED')",
        "a scenario": "s = doc.Sheets.getByIndex(0)\n"
        "s.Scenarios.addNewByName('ADDED', (cell(doc, 'B2').RangeAddress,), 'ADDED')",
        "a text with a shadow": "cell(doc, 'A2').CharShadowed = True",
        "an outlined text": "cell(doc, 'A2').CharContoured = True",
        "a glowing picture": "glowing(doc, doc.Sheets.getByIndex(0).DrawPage)",
    },
    "odp": {
        "a text": "box(doc, 0, 0).String = 'plans'",
        "a box": "added(doc, 0)",
        "an empty box": "added(doc, 0, text='')",
        "a shape": "added(doc, 0, 'EllipseShape', '')",
        "a box off the slide": "added(doc, 0).Position = struct('awt.Point', X=90000, Y=2000)",
        "a box moved": "box(doc, 0, 1).Position = struct('awt.Point', X=90000, Y=2000)",
        "a box resized": "box(doc, 0, 1).Size = struct('awt.Size', Width=10, Height=10)",
        "a box not shown": "box(doc, 0, 1).Visible = False",
        "a box not printed": "box(doc, 0, 1).Printable = False",
        "a slide": "doc.DrawPages.insertNewByIndex(2)",
        "a slide removed": "doc.DrawPages.remove(doc.DrawPages.getByIndex(0))",
        "a hidden slide": "doc.DrawPages.getByIndex(0).Visible = False",
        "another name": "doc.DrawPages.getByIndex(0).Name = 'ADDED'",
        "notes": "[*doc.DrawPages.getByIndex(0).NotesPage][-1].String = 'ADDED'",
        "a comment": "a = doc.DrawPages.getByIndex(0).createAndInsertAnnotation()\na.TextRange.String = 'ADDED'",
        "bold": "box(doc, 0, 0).CharWeight = 150.0",
        "white": "box(doc, 0, 1).CharColor = 0xffffff",
        "tiny": "box(doc, 0, 1).CharHeight = 1.0",
        "a fill": "box(doc, 0, 1).FillStyle = uno.Enum('com.sun.star.drawing.FillStyle', 'SOLID')",
        "a background": "b = doc.createInstance('com.sun.star.drawing.Background')\n"
        "b.FillStyle = uno.Enum('com.sun.star.drawing.FillStyle', 'SOLID')\nb.FillColor = 0xff0000\n"
        "doc.DrawPages.getByIndex(0).Background = b",
        "a transition": "doc.DrawPages.getByIndex(0).Change = 1\ndoc.DrawPages.getByIndex(0).Duration = 9",
        "a master's text": "m = doc.MasterPages.getByIndex(0)\n"
        "n = doc.createInstance('com.sun.star.drawing.TextShape')\n"
        "m.add(n)\nn.Size = struct('awt.Size', Width=3000, Height=900)\nn.String = 'ADDED'",
        "a layer hidden": "doc.LayerManager.getByName('layout').IsVisible = False",
        "another size": "doc.DrawPages.getByIndex(0).Width = 10000",
        "a footer": "p = doc.DrawPages.getByIndex(0)\np.IsFooterVisible = True\np.FooterText = 'ADDED'",
        "a title": "doc.DocumentProperties.Title = 'ADDED'",
        "a form control": "control(doc, doc.DrawPages.getByIndex(0), 'TextField')",
        "a push button": "control(doc, doc.DrawPages.getByIndex(0), 'CommandButton', Label='ADDED')",
        "a macro": "doc.BasicLibraries.createLibrary('ADDED')\n"
        "doc.BasicLibraries.getByName('ADDED').insertByName('M', 'Sub S\\nEnd Sub\\n')",
        "a dialog's library": "doc.DialogLibraries.createLibrary('ADDED')",
        "an event": "bound(doc, 'OnLoad', EventType='Script', Script=SCRIPT)",
        "a box's event": "box(doc, 0, 0).OnClick = uno.Enum('com.sun.star.presentation.ClickAction', 'NEXTPAGE')",
        "a custom show": "s = doc.CustomPresentations\nc = s.createInstance()\n"
        "c.insertByIndex(0, doc.DrawPages.getByIndex(0))\ns.insertByName('ADDED', c)",
        "a custom show played": "s = doc.CustomPresentations\nc = s.createInstance()\n"
        "c.insertByIndex(0, doc.DrawPages.getByIndex(0))\ns.insertByName('ADDED', c)\n"
        "doc.Presentation.CustomShow = 'ADDED'",
        "an endless show": "doc.Presentation.IsEndless = True",
        "a running text": "box(doc, 0, 0).TextAnimationKind = uno.Enum("
        "'com.sun.star.drawing.TextAnimationKind', 'SCROLL')",
        "a text with a shadow": "box(doc, 0, 0).CharShadowed = True",
        "an outlined text": "box(doc, 0, 0).CharContoured = True",
        "a glowing picture": "glowing(doc, doc.DrawPages.getByIndex(0))",
    },
}
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
