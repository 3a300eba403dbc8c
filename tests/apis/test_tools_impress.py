"""Impress's functions as declared: one declaration for the prompt, the grammar, the guest and these tests."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis.actions.grammar import parse
from apis.actions.gui import AnyAction, Tool, line
from apis.catalogue import TOOLS
from apis.functions.declaration import Param
from apis.functions.values import MAX_CM, MAX_LINE
from tests.apis import declared

APP = "libreoffice_impress"
IMPRESS = {function.name: function for function in TOOLS[APP]}

# Names, parameters and types as published; "=" where a call may leave it out, and its default.
PUBLISHED = """
save()
go_to_slide(slide_index: integer)
get_slide_count()
duplicate_slide(slide_index: integer)
set_slide_font(slide_index: integer, font_name: string)
write_text(content: string, page_index: integer, box_index: integer, bold: boolean = False, italic: boolean = False, \
size: integer = None, append: boolean = False)
set_style(slide_index: integer, box_index: integer, bold: boolean = None, italic: boolean = None, \
underline: boolean = None)
configure_auto_save(enabled: boolean, interval_minutes: number)
set_background_color(slide_index: integer, box_index: integer, color: string)
set_text_color(slide_index: integer, box_index: integer, color: string)
delete_content(slide_index: integer, box_index: integer)
set_slide_orientation(orientation: string)
position_box(slide_index: integer, box_index: integer, position: string)
insert_file(file_path: string, slide_index: integer = None, position: object = None, size: object = None, \
autoplay: boolean = False)
set_slide_background(slide_index: integer = None, color: string = None, image_path: string = None)
save_as(file_path: string, overwrite: boolean = False)
insert_image(slide_index: integer, image_path: string, width: number = None, height: number = None, \
position: object = None)
configure_display_settings(use_presenter_view: boolean = None, primary_monitor_only: boolean = None, \
monitor_for_presentation: integer = None)
set_slide_number_color(color: string)
set_text_strikethrough(slide_index: integer, box_index: integer, line_numbers: array, apply: boolean)
set_textbox_alignment(slide_index: integer, box_index: integer, alignment: string)
export_to_image(file_path: string, format: string, slide_index: integer = None)
"""


def test_names_and_parameters_are_the_published_ones() -> None:
    assert [declared.published(function) for function in IMPRESS.values()] == PUBLISHED.strip().splitlines()


@pytest.mark.parametrize(
    ("answer", "arguments"),
    [
        ("ImpressTools.set_text_color(1, 0, 'Red')", {"slide_index": 1, "box_index": 0, "color": "#ff0000"}),
        ("ImpressTools.insert_image(2, '~/a.PNG', height=4, position={'x': 2, 'y': -1.5})",
         {"slide_index": 2, "image_path": "~/a.PNG", "width": None, "height": 4.0, "position": {"x": 2.0, "y": -1.5}}),
        ("ImpressTools.insert_file('~/a.mp4', position={'top': 1, 'left': 2}, size={'height': 3, 'width': 4.5})",
         {"file_path": "~/a.mp4", "slide_index": None, "position": {"x": 2.0, "y": 1.0},
          "size": {"width": 4.5, "height": 3.0}, "autoplay": False}),
        ("ImpressTools.insert_file('~/a.mp4', 3, 'top-left')",
         {"file_path": "~/a.mp4", "slide_index": 3, "position": "top-left", "size": None, "autoplay": False}),
        ("ImpressTools.set_text_strikethrough(1, 2, [3, 1, 3], True)",
         {"slide_index": 1, "box_index": 2, "line_numbers": [1, 3], "apply": True}),
    ],
)  # fmt: skip
def test_arguments_come_in_one_spelling(answer: str, arguments: dict[str, Any]) -> None:
    declared.carried_out(answer, APP, arguments)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("go_to_slide(0)", "slide_index: write a whole number from 1"),
        ("set_style(1, -1)", "box_index: write a whole number from 0"),
        ("set_text_color(1, 0, 'reddish')", "color: write a colour like '#ff0000'"),
        ("insert_image(1, '~/a.txt')", "image_path: the name ends with .png or"),
        ("insert_image(1, '../a.png')", "image_path: write a file of your home folder"),
        ("insert_image(1, '~/a.png', position={'x': 1})", "position: write {'x': 2, 'y': 3.5} in cm"),
        ("insert_image(1, '~/a.png', position={'x': 1, 'y': 'a'})", "position: write {'x': 2, 'y': 3.5} in cm"),
        ("insert_image(1, '~/a.png', position={'x': 1, 'y': 2, 'left': 3})", "position: write {'x': 2, 'y': 3.5} in"),
        ("insert_image(1, '~/a.png', position={'x': {}, 'y': [1]})", "position: write {'x': 2, 'y': 3.5} in cm"),
        ("insert_image(1, '~/a.png', position={x: 1, y: 2})", "position: write {'x': 2, 'y': 3.5} in cm"),
        ("insert_image(1, '~/a.png', position='middle')", "or one of 'left', 'right', 'center'"),
        ("insert_file('~/a.mp4', size={'width': 0})", "size: write {'width': 8, 'height': 4.5} in cm"),
        ("insert_file('~/a.mp4', size={})", "size: write {'width': 8, 'height': 4.5} in cm"),
        ("insert_file('~/a.mp4', size=[1, 2])", "size: write {'width': 8, 'height': 4.5} in cm"),
        ("set_text_strikethrough(1, 0, 2, True)", "line_numbers: write a list of 1 to 100 line numbers"),
        ("set_text_strikethrough(1, 0, [0], True)", "line_numbers: write a list of 1 to 100 line numbers"),
        ("set_text_strikethrough(1, 0, [True], True)", "line_numbers: write a list of 1 to 100 line numbers"),
        ("position_box(1, 0, 'middle')", "position: write one of 'left'"),
        ("set_textbox_alignment(1, 0, 'middle')", "alignment: write one of 'left'"),
        ("configure_auto_save(True, 0)", "interval_minutes: write a number from 1 to 60"),
        ("save_as('~/a.pdf')", "file_path: the name ends with .odp or .pptx or .ppt"),
        ("export_to_image('~/a.png', 'svg')", "format: write one of 'png'"),
        ("write_text('x', 1)", "needs the argument box_index"),
        ("set_slide_font(1, '')", "font_name: write one font's name"),
    ],
)
def test_says_which_argument_is_wrong_and_what_is_right(answer: str, said: str) -> None:
    assert said in declared.refusal(f"ImpressTools.{answer}", APP)


LENGTHS = st.floats(0.1, MAX_CM)


def own(param: Param) -> declared.Strategies:
    return {
        "font": declared.NAMES,
        "path": declared.NAMES.map(lambda name: f"~/Documents/{name}{param.limits[0] if param.limits else ''}"),
        "lines": st.lists(st.integers(1, MAX_LINE), min_size=1, max_size=9),
        "spot": st.sampled_from(param.limits or ("",)) | st.fixed_dictionaries({"x": LENGTHS, "y": LENGTHS}),
        "extent": st.fixed_dictionaries({"width": LENGTHS}, optional={"height": LENGTHS}),
    }


@pytest.mark.slow
@given(declared.calls(IMPRESS.values(), own))
def test_what_is_written_is_read_back(action: Tool) -> None:
    assert parse(line(action), APP) == action
    assert msgspec.json.decode(msgspec.json.encode(action), type=AnyAction) == action


PLAIN = st.none() | st.booleans() | st.integers(-3, 2000) | st.floats() | st.text(max_size=8)
KEYS = st.sampled_from(["x", "y", "left", "top", "width", "height", "z"])
ANYTHING = PLAIN | st.lists(PLAIN, max_size=4) | st.dictionaries(KEYS, PLAIN, max_size=4)
