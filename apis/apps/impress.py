"""The functions of LibreOffice Impress under their published names and parameters, and what a small model sees first.

Slides and lines of text are counted from 1, the boxes of a slide from 0, lengths are in cm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apis.functions.declaration import Function, Param, Tool
from apis.observation import Element

MAX_SLIDE, MAX_BOX = 1000, 500
MAX_CONTENT = 4000  # characters
ORIENTATIONS = ("portrait", "landscape")
SPOTS = ("left", "right", "center", "top", "bottom", "top-left", "top-right", "bottom-left", "bottom-right")
ALIGNMENTS = ("left", "center", "right", "justify")
IMAGES = ("png", "jpeg", "jpg", "gif", "bmp", "tiff")
PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".svg", ".tif", ".tiff", ".webp")
MEDIA = (
    ".mp4", ".m4v", ".mkv", ".webm", ".avi", ".mov", ".ogv", ".mpg", ".mpeg",
    ".mp3", ".m4a", ".wav", ".ogg", ".oga", ".flac", ".opus", ".aac",
)  # fmt: skip
PRESENTATIONS = (".odp", ".pptx", ".ppt")
MAX_MONITOR = 16


def _function(name: str, description: str, *params: Param) -> Function:
    return Function("ImpressTools", name, Tool, params, description)


def _slide(name: str = "slide_index", meaning: str = "the slide's number, from 1") -> Param:
    return Param(name, "integer", "int", (1, MAX_SLIDE), meaning=meaning)


def _box() -> Param:
    return Param("box_index", "integer", "int", (0, MAX_BOX), meaning="the box's number on its slide, from 0")


def _flag(name: str, meaning: str) -> Param:
    return Param(name, "boolean", "bool", (), False, meaning)


def _optional(name: str, kind: str, published: str, limits: tuple[Any, ...] = (), *, meaning: str = "") -> Param:
    return Param(name, kind, f"Optional[{published}]", limits, None, meaning)


def _colour() -> Param:
    return Param("color", "colour", "str", meaning="like '#ff0000' or 'red'")


def _position() -> Param:
    return _optional(
        "position",
        "spot",
        "Dict",
        SPOTS,
        meaning="{'x': cm, 'y': cm} of the upper left corner, or a word like 'center'",
    )


FUNCTIONS: tuple[Function, ...] = (
    _function("save", "Save the presentation to its own file, in the file's own format."),
    _function("go_to_slide", "Show a slide.", _slide()),
    _function("get_slide_count", "Count the slides, and say which one is shown."),
    _function("duplicate_slide", "Copy a slide; the copy stands right behind it.", _slide()),
    _function(
        "set_slide_font",
        "Give all text on a slide one font.",
        _slide(),
        Param("font_name", "font", "str", meaning="like 'Liberation Sans'"),
    ),
    _function(
        "write_text",
        "Replace a box's text, or add to its end.",
        Param("content", "text", "str", (MAX_CONTENT,), meaning="the text; \\n begins a new line"),
        _slide("page_index"),
        _box(),
        _flag("bold", "True: the new text is bold"),
        _flag("italic", "True: the new text is italic"),
        _optional("size", "integer", "int", (1, 400), meaning="in points; None: as the box has it"),
        _flag("append", "True: add to the end of the box's text"),
    ),
    _function(
        "set_style",
        "Make a box's text bold, italic or underlined, or not; what is None stays.",
        _slide(),
        _box(),
        _optional("bold", "boolean", "bool", meaning="True or False"),
        _optional("italic", "boolean", "bool", meaning="True or False"),
        _optional("underline", "boolean", "bool", meaning="True or False"),
    ),
    _function(
        "configure_auto_save",
        "Choose whether documents are saved by themselves, and how often.",
        Param("enabled", "boolean", "bool", meaning="True or False"),
        Param("interval_minutes", "number", "float", (1, 60), meaning="whole minutes from 1 to 60"),
    ),
    _function("set_background_color", "Fill a box with a colour.", _slide(), _box(), _colour()),
    _function("set_text_color", "Give a box's text a colour.", _slide(), _box(), _colour()),
    _function("delete_content", "Empty a box; a picture or another box without text is removed.", _slide(), _box()),
    _function(
        "set_slide_orientation",
        "Turn all slides upright or lengthwise; what stands on them is scaled.",
        Param("orientation", "choice", "str", ORIENTATIONS, meaning="'portrait' or 'landscape'"),
    ),
    _function(
        "position_box",
        "Move a box to an edge, a corner or the middle of its slide.",
        _slide(),
        _box(),
        Param("position", "choice", "str", SPOTS, meaning=f"one of {', '.join(SPOTS)}"),
    ),
    _function(
        "insert_file",
        "Put a video or sound file on a slide.",
        Param("file_path", "path", "str", MEDIA, meaning="a file in your home folder"),
        _optional("slide_index", "integer", "int", (1, MAX_SLIDE), meaning="from 1; None: the slide shown"),
        _position(),
        _optional("size", "extent", "Dict", meaning="{'width': cm, 'height': cm}"),
        _flag("autoplay", "True: it starts with the slide"),
    ),
    _function(
        "set_slide_background",
        "Give a slide a colour or a picture as its background.",
        _optional("slide_index", "integer", "int", (1, MAX_SLIDE), meaning="from 1; None: all slides"),
        _optional("color", "colour", "str", meaning="like '#ff0000' or 'red'"),
        _optional("image_path", "path", "str", PICTURES, meaning="a picture in your home folder"),
    ),
    _function(
        "save_as",
        "Save the presentation to another file and go on with that one.",
        Param("file_path", "path", "str", PRESENTATIONS, meaning="in your home folder, .odp, .pptx or .ppt"),
        _flag("overwrite", "True: replace a file of that name"),
    ),
    _function(
        "insert_image",
        "Put a picture on a slide; with one of width and height it keeps its shape.",
        _slide(),
        Param("image_path", "path", "str", PICTURES, meaning="a picture in your home folder"),
        _optional("width", "number", "float", (0.1, 300), meaning="in cm"),
        _optional("height", "number", "float", (0.1, 300), meaning="in cm"),
        _position(),
    ),
    _function(
        "configure_display_settings",
        "Choose the screens of the slide show; what is None stays.",
        _optional("use_presenter_view", "boolean", "bool", meaning="whether a second screen shows the notes"),
        _optional("primary_monitor_only", "boolean", "bool", meaning="True: the show uses the first screen alone"),
        _optional("monitor_for_presentation", "integer", "int", (0, MAX_MONITOR), meaning="0: chosen by itself"),
    ),
    _function("set_slide_number_color", "Give the slide numbers of all slides a colour.", _colour()),
    _function(
        "set_text_strikethrough",
        "Strike lines of a box's text through, or undo that.",
        _slide(),
        _box(),
        Param("line_numbers", "lines", "List", (100,), meaning="the lines' numbers, from 1, like [1, 3]"),
        Param("apply", "boolean", "bool", meaning="False: undo it"),
    ),
    _function(
        "set_textbox_alignment",
        "Align the lines of a box.",
        _slide(),
        _box(),
        Param("alignment", "choice", "str", ALIGNMENTS, meaning=f"one of {', '.join(ALIGNMENTS)}"),
    ),
    _function(
        "export_to_image",
        "Write slides as pictures.",
        Param(
            "file_path",
            "path",
            "str",
            tuple(f".{ending}" for ending in (*IMAGES, "tif")),
            meaning="in your home folder",
        ),
        Param("format", "choice", "str", IMAGES, meaning=f"one of {', '.join(IMAGES)}"),
        _optional(
            "slide_index", "integer", "int", (1, MAX_SLIDE), meaning="from 1; None: all, as NAME-1.png and so on"
        ),
    ),
)


PARAGRAPHS = 24
BUTTONS = {"Save", "Duplicate Slide", "Delete Slide", "New Slide"}
_DROPPED = {"push-button", "toggle-button", "document-presentation", "document-frame"}


def ranked(elements: Sequence[Element]) -> list[Element]:
    """Open menus, the slide's texts, buttons for slides, menus; a dialog's elements as they come."""
    if not any(element.tag == "document-presentation" for element in elements):
        return list(elements)
    paragraphs = [element for element in elements if element.tag == "paragraph"][:PARAGRAPHS]
    others = [
        element
        for element in elements
        if element.tag != "paragraph"
        and (element.name in BUTTONS or not (element.tag in _DROPPED or "bar" in element.states))
    ]
    return sorted([*paragraphs, *others], key=_rank)


def _rank(element: Element) -> int:
    if element.tag.endswith("menu-item"):
        return 0
    if element.tag == "paragraph":
        return 1
    return 3 if element.tag == "menu" else 2
