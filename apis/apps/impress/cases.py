"""Impress: every function works on a slide of its own, and what it did is read from the saved presentation.

Invariant: a slide's title is the name of the one function that changes it, so no case depends on another. Only the
slides' orientation is changed first, for it moves what stands on them.
"""

from __future__ import annotations

import io
import wave
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

from PIL import Image

from apis.apps.check.case import Case, Desk, Step, Table, same, told, want
from apis.apps.check.odp import PresentationFile, SavedBox
from apis.apps.check.picture import png
from apis.documents.odp import make_odp

PRESENTATION, COPY, END = "Documents/deck.odp", "Documents/copy.pptx", "Documents/end.odp"
PICTURE, BROKEN, SOUND = "Pictures/blue.png", "Pictures/broken.png", "Documents/beep.wav"
TALL, BOMB = "Pictures/tall.png", "Pictures/bomb.png"
PROFILE = ".config/libreoffice/4/user/registrymodifications.xcu"
SLIDES = (
    "go_to_slide", "write_text", "set_style", "set_slide_font", "set_background_color", "set_text_color",
    "delete_content", "position_box", "insert_file", "set_slide_background", "insert_image", "set_text_strikethrough",
    "set_textbox_alignment", "duplicate_slide",
)  # fmt: skip
LINES = ("one", "two", "three")
KINDS = {"png": "PNG", "jpeg": "JPEG", "jpg": "JPEG", "gif": "GIF", "bmp": "BMP", "tiff": "TIFF"}
WIDE, HIGH = 15.75, 28.0  # cm, once the slides stand upright


def _at(function: str) -> int:
    return SLIDES.index(function) + 1


SHOWN = _at("go_to_slide") + 1  # the first one is shown from the beginning


def _box(function: str, box: int, **more: Any) -> dict[str, Any]:
    return {"slide_index": _at(function), "box_index": box, **more}


def _case(
    function: str, right: Mapping[str, Any], says: str, wrong: Mapping[str, Any], refusal: str, **more: Any
) -> Case:
    return Case(function=function, right=right, says=says, wrong=wrong, refusal=refusal, **more)


def _looks(function: str, box: int, line: int, **wanted: str) -> Callable[[PresentationFile], None]:
    """That a line's texts have these properties; "" where they must not have it."""

    def look(presentation: PresentationFile) -> None:
        found = presentation.boxes(_at(function))[box]
        for name, value in wanted.items():
            kind = name.replace("__", ":").replace("_", "-")
            same(found.look(kind, line), {value}, f"{kind} of line {line + 1}")

    return look


def _both(*checks: Callable[[PresentationFile], None]) -> Callable[[PresentationFile], None]:
    def look(presentation: PresentationFile) -> None:
        for check in checks:
            check(presentation)

    return look


def _written(presentation: PresentationFile) -> None:
    same(presentation.boxes(_at("write_text"))[1].lines, ["one", "two", "threeGrüße", "𝄞 <4>"], "lines")


def _emptied(presentation: PresentationFile) -> None:
    boxes = presentation.boxes(_at("delete_content"))
    same("".join(boxes[1].lines), "", "the text of box 1")
    same(boxes[2].lines, ["note"], "the text of box 2")


def _filled(presentation: PresentationFile) -> None:
    box = presentation.boxes(_at("set_background_color"))[2]
    same((box.own("draw:fill"), box.own("draw:fill-color")), ("solid", "#00ff88"), "the box's area")


def _aligned(presentation: PresentationFile) -> None:
    same(presentation.boxes(_at("set_textbox_alignment"))[1].aligned(), {"justify"}, "alignment")


def _moved(presentation: PresentationFile) -> None:
    box = presentation.boxes(_at("position_box"))[2]
    _near((box.cm("x") + box.cm("width"), box.cm("y") + box.cm("height")), (WIDE, HIGH), "lower right corner")


def _near(found: tuple[float, ...], wanted: tuple[float, ...], what: str) -> None:
    want(all(abs(a - b) < 0.02 for a, b in zip(found, wanted, strict=True)), f"{what}: {found}, not {wanted}")


def _last(presentation: PresentationFile, function: str) -> SavedBox:
    boxes = presentation.boxes(_at(function))
    same(len(boxes), 4, "boxes")
    return boxes[3]


def _pictured(presentation: PresentationFile) -> None:
    box = _last(presentation, "insert_image")
    _near(tuple(box.cm(name) for name in ("x", "y", "width", "height")), (2, 3.5, 6, 3), "the picture's place")
    same(presentation.part(box.link("draw:image")), png(20, 10, 0x0000FF), "the picture")


async def _too_long(desk: Desk, _: str) -> None:
    told = await desk.tool("insert_image", slide_index=1, image_path=f"~/{TALL}", width=300)
    want(told.startswith("refused: width: with 300 cm the other side would have"), told)
    told = await desk.tool("insert_image", slide_index=1, image_path=f"~/{BOMB}")
    want(told.startswith("refused: image_path: bomb.png has more than 50000000 pixels"), told)


def _sounding(presentation: PresentationFile) -> None:
    box = _last(presentation, "insert_file")
    _near(tuple(box.cm(name) for name in ("x", "y", "width", "height")), (0, 0, 3, 3), "the sound's place")
    same(presentation.part(box.link("draw:plugin")), _wav(), "the sound")
    same(presentation.played(_at("insert_file")), ["play"], "effects")


def _grounded(presentation: PresentationFile) -> None:
    number = _at("set_slide_background")
    same(presentation.ground(number, "draw:fill"), "bitmap", "the background")
    want(presentation.ground(number, "draw:fill-image-name") != "", "the background's picture has no name")
    same(presentation.ground(number + 1, "draw:fill-color"), "#ffee00", "the next slide's background")


def _turned(presentation: PresentationFile) -> None:
    same(presentation.size(), (f"{WIDE}cm", f"{HIGH:g}cm"), "size of the slides")


def _numbered(presentation: PresentationFile) -> None:
    same(set(presentation.numbers()), {"#0000ff"}, "colours of slide numbers")


def _doubled(presentation: PresentationFile) -> None:
    number = _at("duplicate_slide")
    same(len(presentation.pages), len(SLIDES) + 1, "slides")
    texts = [[box.lines for box in presentation.boxes(each)] for each in (number, number + 1)]
    same(texts[0], texts[1], "the copy's texts")


async def _shown(desk: Desk, _: str) -> None:
    head = (await told(desk)).partition("\n")[0]
    same(head, f"slides: {len(SLIDES)}; current: {SHOWN}", "app info")


async def _told(desk: Desk, _: str) -> None:
    info = await told(desk)
    want("- Box 1 (outline): one\\ntwo\\nthreeGrüße\\n𝄞 <4>\n" in info, f"unsaved text is not in {info}")


def _noted(text: str) -> Step:
    """Have a text that no file holds yet."""

    async def write(desk: Desk) -> None:
        await desk.tool("write_text", content=text, page_index=1, box_index=2)

    return write


async def _saved(desk: Desk, _: str) -> None:
    same(
        PresentationFile(await desk.contents(PRESENTATION)).boxes(1)[2].lines, ["kept ü"], "the text of the saved file"
    )


async def _copied(desk: Desk, _: str) -> None:
    with zipfile.ZipFile(io.BytesIO(await desk.contents(COPY))) as file:
        want("<a:t>copied ü</a:t>" in file.read("ppt/slides/slide1.xml").decode(), "the copy lacks the text")


async def _upright(desk: Desk) -> None:
    await desk.tool("set_slide_orientation", orientation="portrait")


def _picture(ending: str) -> dict[str, Any]:
    return {"file_path": f"~/Pictures/out.{ending}"}


async def _drawn(desk: Desk, _: str) -> None:
    for ending, kind in KINDS.items():
        await desk.tool("export_to_image", format=ending, slide_index=1, **_picture(ending))
        with Image.open(io.BytesIO(await desk.contents(f"Pictures/out.{ending}"))) as found:
            same((found.format, found.size), (kind, (720, 1280)), f"the picture out.{ending}")
            counts = found.convert("L").histogram()
            want(any(counts[:64]) and any(counts[192:]), f"out.{ending} shows no text")


async def _every(desk: Desk, _: str) -> None:
    _setting(await desk.contents(PROFILE), "AutoSave", Enabled="true", TimeIntervall="7")


async def _screens(desk: Desk, _: str) -> None:
    _setting(await desk.contents(PROFILE), "Misc", Display="1")
    _setting(await desk.contents(PROFILE), "Misc/Start", EnablePresenterScreen="false")


def _setting(profile: bytes, path: str, **wanted: str) -> None:
    lines = [line for line in profile.decode().splitlines() if f'/{path}"' in line]
    for name, value in wanted.items():
        found = next((line for line in reversed(lines) if f'oor:name="{name}"' in line), "")
        want(f"<value>{value}</value>" in found, f"{name}: {found or 'not set'}, not {value}")


async def _coloured(desk: Desk) -> None:
    await desk.tool("set_slide_background", slide_index=_at("set_slide_background") + 1, color="#ffee00")


async def _at_rest(desk: Desk) -> None:
    """Let previews of slides that all changed be drawn, as a look before the next call does."""
    await desk.call("settle", timeout_ms=5000, quiet_ms=100)


async def _sound_in_view(desk: Desk) -> None:
    await desk.tool("go_to_slide", slide_index=_at("insert_file"))


CASES = (
    _case("set_slide_orientation", {"orientation": "portrait"}, "slides are portrait, 15.75 x 28 cm",
          {"orientation": "upright"}, "orientation: write one of 'portrait'", saved=_turned, each=_at_rest,
          again=lambda n: {"orientation": ("landscape", "portrait")[n % 2]}),
    _case("go_to_slide", {"slide_index": SHOWN}, f"of {len(SLIDES)} is shown", {"slide_index": 0},
          "slide_index: write a whole number from 1", effect=_shown, again=lambda n: {"slide_index": 1 + n % 4}),
    Case(function="get_slide_count", says=f"{len(SLIDES)} slides; slide {SHOWN} is shown"),
    _case("write_text", {"content": "Grüße\n𝄞 <4>", "page_index": _at("write_text"), "box_index": 1, "bold": True,
          "size": 30, "append": True}, "added to box 1",
          {"content": "x", "page_index": 99, "box_index": 0}, "page_index: there is no slide 99; the slides are 1 to",
          effect=_told, saved=_both(_written, _looks("write_text", 1, 3, fo__font_weight="bold", fo__font_size="30pt"),
          _looks("write_text", 1, 0, fo__font_weight="")), again=lambda n: {"content": f"text {n}", "page_index": 2,
          "box_index": 2}),
    _case("set_style", _box("set_style", 1, bold=True, underline=True), "bold, underlined", _box("set_style", 1),
          "set_style: give bold, italic or underline", saved=_looks("set_style", 1, 2, fo__font_weight="bold",
          style__text_underline_style="solid", fo__font_style="")),
    _case("set_slide_font", {"slide_index": _at("set_slide_font"), "font_name": "DejaVu Sans"}, "the font DejaVu Sans",
          {"slide_index": 1, "font_name": " "}, "font_name: write one font's name",
          saved=_both(*(_looks("set_slide_font", box, 0, style__font_name="DejaVu Sans") for box in range(3)))),
    _case("set_background_color", _box("set_background_color", 2, color="#00FF88"), "the background #00ff88",
          _box("set_background_color", 2, color="#12"), "color: write a colour like '#ff0000'", saved=_filled),
    _case("set_text_color", _box("set_text_color", 0, color="red"), "is #ff0000",
          _box("set_text_color", 3, color="red"), f"box_index: slide {_at('set_text_color')} has no box 3; it has",
          saved=_looks("set_text_color", 0, 0, fo__color="#ff0000")),
    _case("delete_content", _box("delete_content", 1), "is empty", _box("delete_content", 9), "box_index: slide 7 has",
          saved=_emptied),
    _case("position_box", _box("position_box", 2, position="bottom-right"), "box 2 of slide 8 is at x",
          _box("position_box", 2, position="middle"), "position: write one of 'left'", before=_upright,
          saved=_moved),
    _case("insert_file", {"file_path": f"~/{SOUND}", "slide_index": _at("insert_file"), "position": "top-left",
          "size": {"width": 3}, "autoplay": True}, "it starts with the slide", {"file_path": "~/none.mp3"},
          "file_path: there is no file ~/none.mp3", before=_sound_in_view,
          saved=_sounding),
    _case("set_slide_background", {"slide_index": _at("set_slide_background"), "image_path": f"~/{PICTURE}"},
          "is blue.png", {"color": "red", "image_path": f"~/{PICTURE}"}, "color: give either color or image_path",
          before=_coloured, saved=_grounded),
    _case("insert_image", {"slide_index": _at("insert_image"), "image_path": f"~/{PICTURE}", "width": 6,
          "position": {"x": 2, "y": 3.5}}, "6 x 3 cm at x 2 cm, y 3.5 cm",
          {"slide_index": 1, "image_path": f"~/{BROKEN}"}, "image_path: broken.png is no picture", effect=_too_long,
          saved=_pictured),
    _case("set_text_strikethrough", _box("set_text_strikethrough", 1, line_numbers=[3, 1], apply=True), "lines 1, 3",
          _box("set_text_strikethrough", 1, line_numbers=[7], apply=True), "line_numbers: box 1 of slide 12 has lines",
          saved=_both(*(_looks("set_text_strikethrough", 1, line, style__text_line_through_style=style)
          for line, style in enumerate(("solid", "", "solid"))))),
    _case("set_textbox_alignment", _box("set_textbox_alignment", 1, alignment="justify"), "aligned: justify",
          _box("set_textbox_alignment", 1, alignment="middle"), "alignment: write one of 'left'", saved=_aligned),
    _case("set_slide_number_color", {"color": "blue"}, "slide numbers are #0000ff (1 boxes", {"color": "bluish"},
          "color: write a colour like '#ff0000'", saved=_numbered),
    _case("configure_auto_save", {"enabled": True, "interval_minutes": 7}, "on, every 7 minutes",
          {"enabled": True, "interval_minutes": 2.5}, "interval_minutes: write whole minutes", effect=_every),
    _case("configure_display_settings", {"use_presenter_view": False, "monitor_for_presentation": 1}, "screen 1",
          {}, "use_presenter_view: give it", effect=_screens),
    _case("export_to_image", {"file_path": "~/Pictures/out.png", "format": "png", "slide_index": 1}, "wrote out.png",
          {"file_path": "~/Pictures/out.jpg", "format": "png"}, "file_path: for the format png the name ends with .png",
          effect=_drawn, light=False, chosen={each: _picture(each) for each in KINDS}),
    _case("duplicate_slide", {"slide_index": _at("duplicate_slide")}, "slide 15 is a copy of slide 14",
          {"slide_index": 99}, "slide_index: there is no slide 99", saved=_doubled),
    Case(function="save", before=_noted("kept ü"), says="saved deck.odp", effect=_saved),
    _case("save_as", {"file_path": f"~/{COPY}"}, "saved as copy.pptx", {"file_path": f"~/{PRESENTATION}"},
          "file_path: there is a file deck.odp already", before=_noted("copied ü"), effect=_copied, light=False,
          again=lambda _: {"file_path": f"~/{COPY}", "overwrite": True}),
)  # fmt: skip


def _wav() -> bytes:
    """A tenth of a second of silence."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(8000)
        out.writeframes(bytes(1600))
    return file.getvalue()


def _files() -> Mapping[str, bytes]:
    presentation = make_odp([(("title", name), ("outline", "\n".join(LINES)), ("text", "note")) for name in SLIDES])
    return {PRESENTATION: presentation, PICTURE: png(20, 10, 0x0000FF), BROKEN: b"no picture", SOUND: _wav()} | {
        TALL: png(2, 600, 0x0000FF),
        BOMB: png(9000, 9000, 0),
    }


async def _read(desk: Desk) -> PresentationFile:
    await desk.tool("save_as", file_path=f"~/{END}", overwrite=True)
    return PresentationFile(await desk.contents(END))


TABLE = Table(
    app="libreoffice_impress",
    owner="ImpressTools",
    cases=CASES,
    files=_files,
    opens=(f"{{home}}/{PRESENTATION}",),
    title="deck.odp",
    read=_read,
)
