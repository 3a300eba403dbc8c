"""Makes workbooks (.xlsx) with looks, a chart, a pivot table, a view and checks of input, all of them known."""

from __future__ import annotations

import io
import zipfile
from typing import Any

from apis.documents.xlsx import make_xlsx
from apis.documents.zip import zipped

_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
_DRAWN = (
    'xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
)


def _relations(*rows: tuple[str, str]) -> str:
    rels = "".join(
        f'<Relationship Id="rId{n}" Type="{_OFFICE}/{kind}" Target="{target}"/>'
        for n, (kind, target) in enumerate(rows, 1)
    )
    return f'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{rels}</Relationships>'


def _styles(font: str, fill: str) -> str:
    solid = f'<fill><patternFill patternType="solid"><fgColor rgb="{fill}"/></patternFill></fill>'
    plain = '<fill><patternFill patternType="none"/></fill>'
    fonts = f'<fonts><font><name val="Arial"/></font><font><name val="Arial"/>{font}</font></fonts>'
    xfs = '<cellXfs><xf fontId="0" fillId="0"/><xf fontId="1" fillId="1"/></cellXfs>'
    return f"<styleSheet {_MAIN}>{fonts}<fills>{plain}{solid}</fills>{xfs}</styleSheet>"


def chart(
    kind: str = "barChart", title: str = "Sales", values: str = "Sheet1!$B$2:$B$3", direction: str = "col"
) -> str:
    said = f"<c:title><c:tx><c:rich><a:p><a:r><a:t>{title}</a:t></a:r></a:p></c:rich></c:tx></c:title>"
    cats = "<c:cat><c:strRef><c:f>Sheet1!$A$2:$A$3</c:f></c:strRef></c:cat>"
    series = f"<c:ser>{cats}<c:val><c:numRef><c:f>{values}</c:f></c:numRef></c:val></c:ser>"
    drawn = f'<c:{kind}><c:barDir val="{direction}"/>{series}</c:{kind}>'
    return f"<c:chartSpace {_DRAWN}><c:chart>{said}<c:plotArea>{drawn}</c:plotArea></c:chart></c:chartSpace>"


def pivot(rows: str = "0", data: str = "1", subtotal: str = "sum", hidden: str = "") -> str:
    fields = f'<pivotField><items><item x="0"/><item x="1"{hidden}/></items></pivotField><pivotField/>'
    own = f'<rowFields><field x="{rows}"/></rowFields>'
    summed = f'<dataFields><dataField fld="{data}" subtotal="{subtotal}"/></dataFields>'
    inside = f"<pivotFields>{fields}</pivotFields>{own}{summed}"
    return f'<pivotTableDefinition {_MAIN} name="P">{inside}</pivotTableDefinition>'


def styled(
    cells: dict[str, list[list[Any]]],
    *,
    marked: str = "",
    font: str = "<b/>",
    fill: str = "FFFF0000",
    view: str = "",
    after: str = "",
    charts: tuple[str, ...] = (),
    pivots: tuple[str, ...] = (),
) -> bytes:
    """The first sheet's cell `marked` has the other style; `view` and `after` are what stands around its rows."""
    archive = zipfile.ZipFile(io.BytesIO(make_xlsx(cells)))
    parts = {name: archive.read(name).decode() for name in archive.namelist()}
    sheet = parts["xl/worksheets/sheet1.xml"]
    if marked:
        sheet = sheet.replace(f'<c r="{marked}"', f'<c r="{marked}" s="1"')
    parts["xl/worksheets/sheet1.xml"] = sheet.replace("<sheetData>", f"{view}<sheetData>").replace(
        "</sheetData>", f"</sheetData>{after}"
    )
    parts["xl/styles.xml"] = _styles(font, fill)
    rels = "xl/_rels/workbook.xml.rels"
    last = f'<Relationship Id="looks" Type="{_OFFICE}/styles" Target="styles.xml"/></Relationships>'
    parts[rels] = parts[rels].replace("</Relationships>", last)
    tables = [("pivotTable", f"../pivot{n}.xml") for n in range(len(pivots))]
    parts["xl/worksheets/_rels/sheet1.xml.rels"] = _relations(("drawing", "../drawing.xml"), *tables)
    parts["xl/drawing.xml"] = "<drawing/>"
    parts["xl/_rels/drawing.xml.rels"] = _relations(*(("chart", f"chart{n}.xml") for n in range(len(charts))))
    parts |= {f"xl/chart{n}.xml": one for n, one in enumerate(charts)}
    for n, one in enumerate(pivots):
        parts[f"xl/pivot{n}.xml"] = one
        parts[f"xl/_rels/pivot{n}.xml.rels"] = _relations(("pivotCacheDefinition", f"cache{n}.xml"))
        where = '<worksheetSource ref="A1:B3" sheet="Sheet1"/>'
        cache = f'<cacheSource type="worksheet">{where}</cacheSource>'
        parts[f"xl/cache{n}.xml"] = f"<pivotCacheDefinition {_MAIN}>{cache}</pivotCacheDefinition>"
    return zipped(parts)
