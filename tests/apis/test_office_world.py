"""OfficeWorld's metrics on files of the packages that it reads them with."""

from __future__ import annotations

import io
import zipfile

import pytest
from msgspec.structs import replace

from apis.tasks.metrics.metric import scored
from apis.tasks.metrics.registry import METRICS
from apis.tasks.verify.verify import FileView
from runtime.errors import ConfigError
from tests.apis.office_pairs import PAIRS, Pair, book
from tests.apis.twins import as_read, file


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.metric}: {pair.name}")
def test_a_pair_is_judged_by_the_published_rules(pair: Pair) -> None:
    metric = METRICS[pair.metric]
    left = as_read(replace(file(pair.left), name=pair.called), metric.reads)
    expected = replace(file(pair.expected), of_task=True)
    assert scored(metric, left, expected, pair.options).solved is pair.right
    assert scored(metric, expected, expected, pair.options).solved
    for garbage in (b"", b"PK\3\4torn", pair.left[:-40]):
        assert not scored(metric, as_read(file(garbage), metric.reads), expected, pair.options).solved
    assert not scored(metric, FileView("missing"), expected, pair.options).solved
    with pytest.raises(ConfigError, match=pair.metric):
        scored(metric, left, file(b"no document"), pair.options)


def test_an_expected_workbook_that_was_never_calculated_is_the_tasks_fault() -> None:
    metric, options = METRICS["compare_spreadsheet"], {"answer_position": "B1"}
    never = replace(file(book({"A1": 1, "B1": "=A1+1"})), of_task=True)
    with pytest.raises(ConfigError, match="never calculated"):
        scored(metric, as_read(file(book({"A1": 1, "B1": 2})), metric.reads), never, options)


@pytest.mark.filterwarnings("ignore:Unknown extension")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"</sheetData>", b"</sheetData><extLst><ext uri='sparkline'><xm:f>Sheet!A1</xm:f></ext></extLst>"),
        (b'<c r="B1" t="n"><v>2</v>', b'<c r="B1"><f>A1+1</f>\n <v>2</v>'),
    ],
)
def test_an_expected_workbook_whose_cells_have_values_is_calculated(old: bytes, new: bytes) -> None:
    plain, out = book({"A1": 1, "B1": 2}), io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(plain)) as source, zipfile.ZipFile(out, "w") as target:
        parts = {name: source.read(name) for name in source.namelist()}
        sheet = "xl/worksheets/sheet1.xml"
        assert old in parts[sheet]
        parts[sheet] = parts[sheet].replace(old, new.replace(b"xm:f>", b'xm:f xmlns:xm="urn:xm">', 1))
        for name, data in parts.items():
            target.writestr(name, data)
    metric, expected = METRICS["compare_spreadsheet"], replace(file(out.getvalue()), of_task=True)
    assert scored(metric, as_read(file(plain), metric.reads), expected, {"answer_position": "B1"}).solved
