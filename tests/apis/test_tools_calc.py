"""Calc's functions as declared: one declaration for the prompt, the grammar, the guest and these tests."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis.actions.grammar import RefusedAnswer, parse
from apis.actions.gui import GUI, AnyAction, Tool, functions_for, line
from apis.catalogue import TOOLS, call
from apis.functions.declaration import Param
from apis.functions.values import Unfit
from apis.guest import addresses
from tests.apis import declared

CALC = {function.name: function for function in TOOLS["libreoffice_calc"]}

# Names, parameters and types as published; "=" where a call may leave it out, and its default.
PUBLISHED = """
get_workbook_info()
save()
get_column_data(column_name: string)
switch_active_sheet(sheet_name: string)
set_column_values(column_name: string, data: array, start_index: integer = 2)
highlight_range(range_str: string, color: integer = 16711680)
transpose_range(source_range: string, target_cell: string)
export_to_csv()
sort_column(column_name: string, ascending: boolean = True, start_index: integer = 2)
set_validation_list(column_name: string, values: array)
hide_row_data(value: string = 'N/A')
reorder_columns(column_order: array)
create_pivot_table(source_sheet: string, table_name: string, value_fields: array, row_fields: array = None, \
col_fields: array = None, aggregation_function: string = 'sum', target_cell: string = 'A1')
merge_cells(range_str: string)
set_cell_value(cell: string, value: string)
format_range(range_str: string, background_color: string = None, font_color: string = None, bold: boolean = None, \
alignment: string = None)
create_chart(chart_type: string, data_range: string, title: string = None, x_axis_title: string = None, \
y_axis_title: string = None)
freeze_panes(rows: integer = 0, columns: integer = 0)
rename_sheet(old_name: string, new_name: string)
copy_sheet(source_sheet: string, new_sheet_name: string = None)
reorder_sheets(sheet_name: string, position: integer)
set_chart_legend_position(position: string)
set_number_format(range_str: string, format_type: string, decimal_places: integer = None)
adjust_column_width(columns: string, width: number = None, autofit: boolean = False)
adjust_row_height(rows: string, height: number = None, autofit: boolean = False)
export_to_pdf(file_path: string = None, sheets: array = None, open_after_export: boolean = False)
set_zoom_level(zoom_percentage: integer)
"""


def test_names_and_parameters_are_the_published_ones() -> None:
    assert [declared.published(function) for function in CALC.values()] == PUBLISHED.strip().splitlines()


def test_only_the_active_application_has_its_functions() -> None:
    assert set(functions_for("libreoffice_calc")) - set(functions_for("terminal")) == {f"CalcTools.{n}" for n in CALC}
    lacking = "there is no function CalcTools.save here: bring a window of libreoffice_calc to the front first"
    assert declared.refusal("CalcTools.save()", "text_editor") == lacking
    nearest = declared.refusal("CalcTools.set_cell(cell='A1', value='1')", "libreoffice_calc")
    assert "did you mean CalcTools.set_cell_value?" in nearest


@pytest.mark.parametrize(
    ("answer", "arguments"),
    [
        ("CalcTools.set_cell_value('b3', 42)", {"cell": "B3", "value": "42"}),
        ("CalcTools.set_cell_value(cell='$B$3', value='=SUM(B2:B5)')", {"cell": "B3", "value": "=SUM(B2:B5)"}),
        ("CalcTools.set_cell_value(cell='XFD1048576', value=-1.5)", {"cell": "XFD1048576", "value": "-1.5"}),
        ("CalcTools.set_column_values('aa', ['a', -1, 2.5, None, True])",
         {"column_name": "AA", "data": ["a", -1, 2.5, None, True], "start_index": 2}),
        ("CalcTools.merge_cells('c10:A1')", {"range_str": "A1:C10"}),
        ("CalcTools.highlight_range('A1', 0xffff00)", {"range_str": "A1", "color": 0xFFFF00}),
        ("CalcTools.highlight_range('A1')", {"range_str": "A1", "color": 0xFF0000}),
        ("CalcTools.format_range('A1:B2', font_color='Red', bold=None)",
         {"range_str": "A1:B2", "background_color": None, "font_color": "#ff0000", "bold": None, "alignment": None}),
        ("CalcTools.adjust_column_width('C:a', 12)", {"columns": "A:C", "width": 12.0, "autofit": False}),
        ("CalcTools.adjust_row_height(rows='10:2', autofit=True)", {"rows": "2:10", "height": None, "autofit": True}),
        ("CalcTools.reorder_columns(['b', 'A'])", {"column_order": ["B", "A"]}),
    ],
)  # fmt: skip
def test_arguments_come_in_one_spelling(answer: str, arguments: dict[str, Any]) -> None:
    declared.carried_out(answer, "libreoffice_calc", arguments)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("set_cell_value('B', '1')", "cell: write one cell like 'B3'"),
        ("set_cell_value('XFE1', '1')", "columns A to XFD"),
        ("set_cell_value('A1048577', '1')", "rows 1 to 1048576"),
        ("set_cell_value('A1:B2', '1')", "cell: write one cell"),
        ("set_cell_value(['A1'], '1')", "cell: write one cell"),
        ("set_cell_value('A1')", "needs the argument value"),
        ("set_cell_value('A1', None)", "value: write a string"),
        ("set_cell_value('A1', value)", "value: write a string"),
        ("set_cell_value('A1', '\\x1b')", "control character"),
        ("merge_cells('Sheet2.A1:B2')", "range_str: write a range like 'A1:C10'"),
        ("merge_cells('A1:XFD1048576')", "range_str: at most 2097152 cells"),
        (f"set_zoom_level({'9' * 5000})", "a number: 5000 digits are too many"),
        (f"set_zoom_level(zoom_percentage={'9' * 5000})", "zoom_percentage: 5000 digits are too many"),
        (f"set_zoom_level({'9' * 2000})", "zoom_percentage: write a whole number from 20 to 600"),
        ("get_column_data('Price')", "column_name: write a column's letters"),
        ("set_column_values('A', 'x')", "data: write a list of 1 to 500"),
        ("set_column_values('A', [])", "data: write a list of 1 to 500"),
        ("set_column_values('A', [[1]])", "data: the list holds strings"),
        ("set_column_values('A', [1], 0)", "start_index: write a whole number from 1"),
        ("rename_sheet('a', 'b/c')", "new_name: a sheet's name"),
        ("highlight_range('A1', '#ff0000')", "color: write a whole number"),
        ("highlight_range('A1', 16777216)", "color: write a whole number"),
        ("format_range('A1', 'reddish')", "background_color: write a colour like '#ff0000'"),
        ("format_range('A1', bold=1)", "bold: write True or False"),
        ("format_range('A1', alignment='middle')", "alignment: write one of 'left'"),
        ("adjust_column_width('A', 0)", "width: write a number from 0.1 to 255"),
        ("adjust_column_width('1')", "columns: write columns like"),
        ("adjust_row_height('A')", "rows: write rows like"),
        ("reorder_columns(['A', 'a'])", "column_order: write a list of different columns"),
        ("set_validation_list('A', [1])", "values: write a string"),
        ("export_to_pdf('../x.pdf')", "file_path: write a file of your home folder"),
        ("export_to_pdf('~/x.txt')", "file_path: the name ends with .pdf"),
        ("set_zoom_level(5)", "zoom_percentage: write a whole number from 20 to 600"),
        ("reorder_sheets('a', position=-1)", "position: write a whole number from 0"),
        ("save(path='x')", "no argument path: it takes none"),
    ],
)
def test_says_which_argument_is_wrong_and_what_is_right(answer: str, said: str) -> None:
    assert said in declared.refusal(f"CalcTools.{answer}", "libreoffice_calc")


def test_long_flat_lists_are_no_nesting() -> None:
    data = list(range(500))
    action = call("CalcTools", "set_column_values", column_name="A", data=data)
    assert parse(line(action), "libreoffice_calc") == action
    for value in (-12.75, True, False, None):
        action = call("CalcTools", "set_column_values", column_name="A", data=[value] * 500)
        assert parse(line(action), "libreoffice_calc") == action
    for deep in ("-" * 500 + "1", "1" + " -1" * 500, "not " * 500 + "True", "a" + ".a" * 500, "- " * 500 + "1"):
        assert isinstance(parse(f"CalcTools.set_column_values('A', [{deep}])", "libreoffice_calc"), RefusedAnswer)


def test_calls_by_oracles_are_checked_too() -> None:
    with pytest.raises(Unfit, match="cell: write one cell"):
        call("CalcTools", "set_cell_value", cell="3B", value="1")
    with pytest.raises(TypeError, match="colour"):
        call("CalcTools", "set_cell_value", cell="B3", value="1", colour=1)
    with pytest.raises(LookupError):
        call("CalcTools", "set_cell", cell="B3")
    shown = line(call("CalcTools", "set_cell_value", cell="B3", value="42"))
    assert shown == "CalcTools.set_cell_value(cell='B3', value='42')"


ROWS, COLUMNS = st.integers(1, addresses.ROWS), st.integers(0, addresses.COLUMNS - 1).map(addresses.letters)
CELLS = st.builds("{}{}".format, COLUMNS, ROWS)
NUMBERS = st.floats(-(2**53), 2**53, exclude_min=True, exclude_max=True) | st.integers(-(2**53) + 1, 2**53 - 1)


@st.composite
def ranges(draw: st.DrawFn) -> str:
    """Two corners of at most 64 columns and 30,000 rows, whichever of them is named first."""
    columns = [draw(st.integers(0, addresses.COLUMNS - 1))]
    rows = [draw(st.integers(0, addresses.ROWS - 1))]
    columns.append(draw(st.integers(columns[0], min(columns[0] + 63, addresses.COLUMNS - 1))))
    rows.append(draw(st.integers(rows[0], min(rows[0] + 29_999, addresses.ROWS - 1))))
    pairs = zip(columns, draw(st.permutations(rows)), strict=True)
    return ":".join(draw(st.permutations([addresses.address(row, column) for column, row in pairs])))


def own(_: Param) -> declared.Strategies:
    return {
        "cell": CELLS,
        "range": CELLS | ranges(),
        "column": COLUMNS,
        "columns": COLUMNS | st.builds("{}:{}".format, COLUMNS, COLUMNS),
        "rows": ROWS.map(str) | st.builds("{}:{}".format, ROWS, ROWS),
        "letters": st.lists(COLUMNS, min_size=1, max_size=9, unique=True),
        "sheet": declared.NAMES,
        "scalars": st.lists(declared.TYPED | NUMBERS | st.none() | st.booleans(), min_size=1, max_size=9),
        "names": st.lists(declared.NAMES, min_size=1, max_size=4),
        "entry": declared.TYPED | NUMBERS,
        "rgb": st.integers(0, 0xFFFFFF),
        "path": declared.NAMES.map("~/Documents/{}.pdf".format),
    }


@given(declared.calls(CALC.values(), own))
def test_what_is_written_is_read_back(action: Tool) -> None:
    assert parse(line(action), "libreoffice_calc") == action
    assert msgspec.json.decode(msgspec.json.encode(action), type=AnyAction) == action


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | CELLS,
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=6,
)


def test_every_application_has_a_class_name_of_its_own() -> None:
    owners = [{function.owner for function in functions} for functions in TOOLS.values()]
    assert all(len(names) == 1 for names in owners)
    assert len(set().union(*owners)) == len(owners)
    assert not {function.name for function in GUI} & set(CALC)
