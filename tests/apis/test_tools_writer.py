"""Writer's functions as declared: one declaration for the prompt, the grammar, the guest and these tests."""

import io
import zipfile
from typing import Any

import docx
import pytest
from docx.enum.text import WD_COLOR
from hypothesis import given
from hypothesis import strategies as st

from apis.actions.grammar import parse
from apis.actions.gui import GUI, functions_for, line
from apis.catalogue import TOOLS, call
from apis.documents.docx import Run, make_docx
from tests.apis import declared

WRITER = {function.name: function for function in TOOLS["libreoffice_writer"]}

# Names, parameters and types as published; "=" where a call may leave it out, and its default.
PUBLISHED = """
save()
write_text(text: string, bold: boolean = False, italic: boolean = False, size: number = None)
set_color(pattern: string, color: number, paragraph_indices: array = None)
find_and_replace(pattern: string, replacement: string, paragraph_indices: array = None)
set_font(font_name: string, paragraph_indices: array = None)
set_line_spacing(spacing_value: number, paragraph_indices: array = None)
remove_highlighting(paragraph_indices: array = None)
find_highlighted_text(highlight_color: string)
insert_formula_at_cursor(formula: string)
insert_image_at_cursor(image_path: string, width: integer = None, height: integer = None)
set_strikethrough(pattern: string, paragraph_indices: array = None)
set_font_size(font_size: number, pattern: string, paragraph_indices: array = None)
export_to_pdf(output_path: string = None, output_filename: string = None, include_comments: boolean = False, \
quality: string = 'standard')
set_paragraph_alignment(alignment: string, paragraph_indices: array = None)
capitalize_words(paragraph_indices: array = None)
set_default_font(font_name: string, font_size: number = None)
add_page_numbers(position: string, start_number: integer = 1, format: string = None)
insert_page_break(position: string = 'at_cursor')
change_text_case(case_type: string, pattern: string, paragraph_indices: array = None)
"""


def test_names_and_parameters_are_the_published_ones() -> None:
    colours = {"rgb": "number"}  # each is a whole number, which is a number
    assert [declared.published(function, colours) for function in WRITER.values()] == PUBLISHED.strip().splitlines()


def test_only_the_active_application_has_its_functions() -> None:
    only = set(functions_for("libreoffice_writer")) - set(functions_for("terminal"))
    assert only == {f"WriterTools.{name}" for name in WRITER}
    assert not {function.name for function in GUI} & set(WRITER)
    lacking = declared.refusal("WriterTools.save()", "libreoffice_calc")
    assert lacking.endswith("bring a window of libreoffice_writer to the front first")
    assert "WriterTools.find_and_replace" in declared.refusal("WriterTools.replace(pattern='a')", "libreoffice_writer")


@pytest.mark.parametrize(
    ("answer", "arguments"),
    [
        ("write_text('a\\nb', size=12)", {"text": "a\nb", "bold": False, "italic": False, "size": 12.0}),
        ("set_color('x+', 0xff)", {"pattern": "x+", "color": 255, "paragraph_indices": None}),
        ("find_and_replace(r'(a)\\1', '\\\\1', [3, 0, 3])",
         {"pattern": "(a)\\1", "replacement": "\\1", "paragraph_indices": [0, 3]}),
        ("set_default_font(' Times New Roman ')", {"font_name": "Times New Roman", "font_size": None}),
        ("find_highlighted_text('Yellow')", {"highlight_color": "#ffff00"}),
        ("export_to_pdf(output_filename='report')", {"output_path": None, "output_filename": "report.pdf",
         "include_comments": False, "quality": "standard"}),
        ("add_page_numbers('top_left')", {"position": "top_left", "start_number": 1, "format": None}),
    ],
)  # fmt: skip
def test_arguments_come_in_one_spelling(answer: str, arguments: dict[str, Any]) -> None:
    action = declared.carried_out(f"WriterTools.{answer}", "libreoffice_writer", arguments)
    assert parse(line(action), "libreoffice_writer") == action


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("write_text(5)", "text: write a string in quotes"),
        ("write_text('x', size=0)", "size: write a number from 1 to 500"),
        ("set_color('x', '#ff0000')", "color: write a whole number"),
        ("set_color(3, 1)", "pattern: write a string"),
        ("set_font('a;b')", "font_name: write one font's name"),
        ("set_font('A', [-1])", "paragraph_indices: write a list of 1 to 500 whole numbers from 0 on"),
        ("set_font('A', [True])", "paragraph_indices: write a list"),
        ("set_font('A', 1)", "paragraph_indices: write a list"),
        ("set_font('A', [])", "paragraph_indices: write a list"),
        ("set_line_spacing(0)", "spacing_value: write a number from 0.5 to 10"),
        ("find_highlighted_text('light')", "highlight_color: write a colour"),
        ("insert_image_at_cursor('a.exe')", "image_path: the name ends with .png or"),
        ("insert_image_at_cursor('../a.png')", "image_path: write a file of your home folder"),
        ("export_to_pdf('https://x/y')", "output_path: write a folder of your home folder"),
        ("export_to_pdf(output_filename='a/b.pdf')", "output_filename: write a file's name without a folder"),
        ("export_to_pdf(quality='best')", "quality: write one of 'standard'"),
        ("set_paragraph_alignment('middle')", "alignment: write one of 'left', 'center', 'right', 'justify'"),
        ("add_page_numbers('left')", "position: write one of 'top_left'"),
        ("insert_page_break('here')", "position: write one of 'at_cursor', 'end_of_document'"),
        ("change_text_case('x', 'y')", "case_type: write one of 'lowercase', 'uppercase'"),
        ("change_text_case('uppercase')", "needs the argument pattern"),
    ],
)
def test_says_which_argument_is_wrong_and_what_is_right(answer: str, said: str) -> None:
    assert said in declared.refusal(f"WriterTools.{answer}", "libreoffice_writer")


ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=110)


@given(st.lists(st.integers(0, 99_999), min_size=1, max_size=9), st.text("ab\\()\u00e9", max_size=9))
def test_what_is_written_is_read_back(indices: list[int], text: str) -> None:
    action = call("WriterTools", "find_and_replace", pattern=text, replacement=text, paragraph_indices=indices)
    assert parse(line(action), "libreoffice_writer") == action


WORDS = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_categories=["C"]), max_size=12)


@given(st.lists(WORDS, min_size=1, max_size=5))
def test_a_made_document_holds_what_was_put_in(paragraphs: list[str]) -> None:
    data = make_docx(paragraphs)
    assert data == make_docx(paragraphs)
    assert [each.text for each in docx.Document(io.BytesIO(data)).paragraphs] == paragraphs
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert {info.date_time[0] for info in archive.infolist()} == {2020}


def test_a_made_document_has_looks() -> None:
    made = make_docx([(Run("a "), Run("b", highlight="yellow", bold=True))])
    first, second = docx.Document(io.BytesIO(made)).paragraphs[0].runs
    assert (first.bold, second.bold, second.font.highlight_color) == (None, True, WD_COLOR.YELLOW)
    with pytest.raises(ValueError, match="at least one paragraph"):
        make_docx([])
