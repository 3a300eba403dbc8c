"""Makes workbooks (.xlsx) with looks, a chart, a pivot table, a view and checks of input, all of them known."""

from __future__ import annotations

import io
import re
import zipfile
from typing import Any

from apis.documents.xlsx import make_xlsx
from apis.documents.zip import zipped

_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
_PLACED = "http://schemas.openxmlformats.org/drawingml/2006/spreadsheetDrawing"
_CHART = "http://schemas.openxmlformats.org/drawingml/2006/chart"
_DRAWN = f'xmlns:c="{_CHART}" xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'


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
    depending = '<dxfs><dxf><fill><patternFill><bgColor rgb="FF00FF00"/></patternFill></fill></dxf></dxfs>'
    return f"<styleSheet {_MAIN}>{fonts}<fills>{plain}{solid}</fills>{xfs}{depending}</styleSheet>"


def _titled(text: str) -> str:
    return f"<c:title><c:tx><c:rich><a:p><a:r><a:t>{text}</a:t></a:r></a:p></c:rich></c:tx></c:title>"


def axis(kind: str, title: str) -> str:
    """An axis of a chart, cat or val, with its title."""
    own, other = ("1", "2") if kind == "cat" else ("2", "1")
    place = f'<c:axId val="{own}"/><c:scaling/><c:delete val="0"/><c:axPos val="b"/>'
    return f'<c:{kind}Ax>{place}{_titled(title)}<c:crossAx val="{other}"/></c:{kind}Ax>'


def legend(at: str) -> str:
    """A legend at this side of a chart."""
    return f'<c:legend><c:legendPos val="{at}"/></c:legend>'


def chart(
    kind: str = "barChart",
    title: str = "Sales",
    values: str = "Sheet1!$B$2:$B$3",
    direction: str = "col",
    *,
    axes: tuple[str, ...] = (),
    more: str = "",
) -> str:
    """A chart of one series, with what is to be told apart."""
    cats = "<c:cat><c:strRef><c:f>Sheet1!$A$2:$A$3</c:f></c:strRef></c:cat>"
    shown = f"<c:val><c:numRef><c:f>{values}</c:f></c:numRef></c:val>"
    series = f'<c:ser><c:idx val="0"/><c:order val="0"/>{cats}{shown}</c:ser>'
    way = f'<c:barDir val="{direction}"/>' if kind == "barChart" else ""
    ids = '<c:axId val="1"/><c:axId val="2"/>' if axes else ""
    drawn = f"<c:{kind}>{way}{series}{ids}</c:{kind}>{''.join(axes)}"
    inside = f"{_titled(title)}<c:plotArea>{drawn}</c:plotArea>{more}"
    return f"<c:chartSpace {_DRAWN}><c:chart>{inside}</c:chart></c:chartSpace>"


def _drawing(charts: int) -> str:
    """A drawing that places its charts one upon the other."""
    own = '<xdr:cNvPr id="2" name="a"/><xdr:cNvGraphicFramePr/>'
    head = f"<xdr:nvGraphicFramePr>{own}</xdr:nvGraphicFramePr><xdr:xfrm/>"
    shown = "".join(
        f'<xdr:absoluteAnchor><xdr:pos x="0" y="0"/><xdr:ext cx="9" cy="9"/><xdr:graphicFrame>{head}<a:graphic>'
        f'<a:graphicData uri="{_CHART}"><c:chart r:id="rId{n}"/></a:graphicData></a:graphic></xdr:graphicFrame>'
        "<xdr:clientData/></xdr:absoluteAnchor>"
        for n in range(1, charts + 1)
    )
    return f'<xdr:wsDr xmlns:xdr="{_PLACED}" {_DRAWN} xmlns:r="{_OFFICE}">{shown}</xdr:wsDr>'


def pivot(rows: str = "0", data: str = "1", subtotal: str = "sum", hidden: str = "") -> str:
    """A pivot table of the first two columns."""
    fields = f'<pivotField><items><item x="0"/><item x="1"{hidden}/></items></pivotField><pivotField/>'
    own = f'<rowFields><field x="{rows}"/></rowFields>'
    summed = f'<dataFields><dataField fld="{data}" subtotal="{subtotal}"/></dataFields>'
    inside = f"<pivotFields>{fields}</pivotFields>{own}{summed}"
    place = '<location ref="D1:E3" firstHeaderRow="1" firstDataRow="1" firstDataCol="1"/>'
    told = 'name="P" cacheId="1" dataCaption="a"'
    return f"<pivotTableDefinition {_MAIN} {told}>{place}{inside}</pivotTableDefinition>"


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
    caches = "".join(f'<pivotCache cacheId="1" r:id="cache{n}"/>' for n in range(len(pivots)))
    if caches:
        book = parts["xl/workbook.xml"]
        parts["xl/workbook.xml"] = book.replace("</workbook>", f"<pivotCaches>{caches}</pivotCaches></workbook>")
        kept = "".join(
            f'<Relationship Id="cache{n}" Type="{_OFFICE}/pivotCacheDefinition" Target="cache{n}.xml"/>'
            for n in range(len(pivots))
        )
        parts[rels] = parts[rels].replace("</Relationships>", f"{kept}</Relationships>")
    tables = [("pivotTable", f"../pivot{n}.xml") for n in range(len(pivots))]
    parts["xl/worksheets/_rels/sheet1.xml.rels"] = _relations(("drawing", "../drawing.xml"), *tables)
    parts["xl/drawing.xml"] = _drawing(len(charts))
    parts["xl/_rels/drawing.xml.rels"] = _relations(*(("chart", f"chart{n}.xml") for n in range(len(charts))))
    parts |= {f"xl/chart{n}.xml": one for n, one in enumerate(charts)}
    for n, one in enumerate(pivots):
        parts[f"xl/pivot{n}.xml"] = one
        parts[f"xl/_rels/pivot{n}.xml.rels"] = _relations(("pivotCacheDefinition", f"cache{n}.xml"))
        where = '<worksheetSource ref="A1:B3" sheet="Sheet1"/>'
        cache = f'<cacheSource type="worksheet">{where}</cacheSource>'
        parts[f"xl/cache{n}.xml"] = f"<pivotCacheDefinition {_MAIN}>{cache}</pivotCacheDefinition>"
    return zipped(parts)


_TEXT = re.compile(r'(<c r="\w+")((?: s="\d+")?) t="inlineStr"><is><t[^>]*>([^<]*)</t></is>')


def shared(data: bytes) -> bytes:
    """The same workbook with its texts in one list, as offices write them."""
    archive = zipfile.ZipFile(io.BytesIO(data))
    parts = {name: archive.read(name).decode() for name in archive.namelist()}
    texts: list[str] = []

    def moved(cell: re.Match[str]) -> str:
        texts.append(cell[3])
        return f'{cell[1]}{cell[2]} t="s"><v>{len(texts) - 1}</v>'

    parts |= {name: _TEXT.sub(moved, one) for name, one in parts.items() if name.startswith("xl/worksheets/sheet")}
    listed = "".join(f'<si><t xml:space="preserve">{text}</t></si>' for text in texts)
    parts["xl/sharedStrings.xml"] = f"<sst {_MAIN}>{listed}</sst>"
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"
    override = f'<Override PartName="/xl/sharedStrings.xml" ContentType="{kind}"/></Types>'
    parts["[Content_Types].xml"] = parts["[Content_Types].xml"].replace("</Types>", override)
    rels = "xl/_rels/workbook.xml.rels"
    last = f'<Relationship Id="texts" Type="{_OFFICE}/sharedStrings" Target="sharedStrings.xml"/></Relationships>'
    parts[rels] = parts[rels].replace("</Relationships>", last)
    return zipped(parts)
