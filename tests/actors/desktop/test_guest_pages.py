"""What of a web page a click reaches, on a real Chromium."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from apis.observation import Element, Observation, from_guest

Guest = Any  # a desktop in a test's words: see conftest.py
pytestmark = [
    pytest.mark.desktop,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed"),
]
HIT = "onclick=\"document.title += ' ' + this.textContent.trim()\""
WRAPPED = (
    "<div style='width:420px;font:20px monospace'>aaaa bbbb cccc dddd eeee ffff"
    f" <a href='#hit' {HIT}>link words</a> and so on it goes on</div>"
    "<div dir=rtl style='width:420px;font:20px monospace'>אאאא בבבב גגגג דדדד הההה וווו"
    f" <a href='#hit' {HIT}>קישור מלים</a> ועוד ועוד</div><p style='margin-top:2000px'><a href='#far'>far</a>"
)
COVERED = (
    f"<button {HIT}>Behind</button> <p>text behind</p> <iframe srcdoc='<button>framed</button>'></iframe>"
    "<div id=host></div><script>host.attachShadow({mode: 'open'}).innerHTML = '<button>shadowed</button>'</script>"
    "<div id=over style='position:fixed;inset:0;background:#eee'><p style='margin:300px'>Cookies?"
    f" <button onclick='over.remove()'>Accept</button></div>"
)
PARTLY = (
    f"<button {HIT} style='width:300px'>Side</button><button>Glass</button><h3>Title</h3>"
    "<div style='position:absolute;left:250px;top:0;width:80px;height:30px;background:red'></div>"
    "<div style='position:fixed;inset:0;pointer-events:none;background:#0003'></div>"
    "<div style='position:relative;width:300px'><p>Card text</p><button>In the card</button>"
    f"<a href='#c' style='position:absolute;inset:0' {HIT}>Card</a></div>"
    "<div style='position:relative;display:inline-block'><button>Busy</button>"
    "<div style='position:absolute;inset:0;background:#fffc'></div></div>"
)
STYLED = (
    "<style>.none{display:none}.zero{position:absolute;opacity:0;width:0;height:0}.far{position:absolute;left:-9999px}"
    ".one{position:absolute;width:1px;height:1px;clip:rect(0,0,0,0);overflow:hidden}</style>"
    + "".join(
        f"<p><input type=checkbox class={kind} id={kind} {checked}><label for={kind}><b>[ ]</b> Box {kind}</label>"
        for kind, checked in (("none", "checked"), ("zero", ""), ("far", "checked"), ("one", "disabled"))
    )
    + "<p><label><input type=radio class=zero checked><span>Round</span></label>"
    "<p><label><input type=checkbox checked>Plain</label><p>"
    "<input type=range aria-label=Volume max=10 value=3 style='width:200px' oninput='document.title = this.value'>"
)


async def page(guest: Guest, name: str, body: str, folder: str = "") -> Observation:
    await guest("write_file", path=f"{name}.html", data=f"<meta charset=utf-8><title>{name}</title>{body}".encode())
    await guest.open("chromium", f"{folder}{name}.html", title=name)
    return await look(guest)


async def look(guest: Guest) -> Observation:
    await guest("settle", timeout_ms=8000, quiet_ms=150)
    return from_guest(await guest("observe"))


def rows(seen: Observation, *tags: str) -> dict[str, Element]:
    return {element.label: element for element in seen.elements if element.tag in tags and element.y > 80}


async def click(guest: Guest, element: Element) -> Observation:
    await guest.act("click", x=element.cx, y=element.cy)
    return await look(guest)


async def test_a_link_over_two_lines_is_clicked_where_it_is(guest: Guest) -> None:
    links = rows(await page(guest, "Wrapped", WRAPPED), "link")
    for name in ("link words", "קישור מלים"):
        assert name in (await click(guest, links[name])).windows[0].title
    assert not [e for e in (await look(guest)).elements if e.tag == "static" and e.label == "link words"]
    await guest.act("hotkey", keys=["ctrl", "plus"])
    zoomed = rows(await look(guest), "link")
    assert zoomed["link words"].h > links["link words"].h
    title = (await click(guest, zoomed["link words"])).windows[0].title
    assert title.count("link words") == 2
    await guest.act("hotkey", keys=["End"])
    assert [*rows(await look(guest), "link")] == ["far"]


async def test_what_a_page_covers_is_not_listed_until_it_is_free(guest: Guest) -> None:
    seen = await page(guest, "Covered", COVERED)
    assert [*rows(seen, "push-button")] == ["Accept"]
    assert "text behind" not in rows(seen, "static", "paragraph")
    free = await click(guest, rows(seen, "push-button")["Accept"])
    assert [*rows(free, "push-button")] == ["Behind", "framed", "shadowed"]
    assert "text behind" in rows(free, "static", "paragraph")


async def test_what_shows_through_stays_and_what_takes_no_click_does_not(guest: Guest) -> None:
    seen = await page(guest, "Partly", PARTLY)
    assert [*rows(seen, "push-button")] == ["Side", "Glass"]
    assert "Card" in (await click(guest, rows(seen, "link")["Card"])).windows[0].title
    assert {"Title", "Card text"} <= {element.label for element in seen.elements}


async def test_a_styled_box_has_its_state_at_its_label_and_a_slider_its_value(guest: Guest) -> None:
    seen = await page(guest, "Styled", STYLED)
    boxes = rows(seen, "check-box", "radio-button")
    states = {label: set(element.states) - {"foc"} for label, element in boxes.items()}
    assert states == {
        "[ ] Box none": {"chk", "sen"}, "[ ] Box zero": {"sen"}, "[ ] Box far": {"chk", "sen"}, "[ ] Box one": {"off"},
        "Round": {"chk", "sen"}, "Plain": {"chk", "sen"},
    }  # fmt: skip
    for label in ("[ ] Box none", "[ ] Box zero", "[ ] Box far"):
        now = rows(await click(guest, boxes[label]), "check-box")
        assert ("chk" in now[label].states) != ("chk" in boxes[label].states), label
    slider = rows(seen, "slider")["Volume (3)"]
    across = slider.x + 8 + 3 * (slider.w - 16) // 10
    await guest.act("drag", x=across, y=slider.cy, x2=slider.x + 8 + 8 * (slider.w - 16) // 10, y2=slider.cy)
    assert "Volume (8)" in rows(await look(guest), "slider")
    assert (await look(guest)).windows[0].title.startswith("8 ")


FRAMED = (
    "<button>Behind</button><style>input{position:absolute;opacity:0;width:0;height:0}</style>"
    "<div style='position:fixed;inset:0;background:#eee'><p style='margin:40px'><button>Accept</button>"
    "<input type=checkbox id=box checked><label for=box>Fancy</label></div>"
)
SANDBOXED = f'<iframe width=600 height=200 sandbox srcdoc="{FRAMED}"></iframe>'


@pytest.mark.parametrize(
    "frame",
    [
        "<iframe width=600 height=200 src=inner.html></iframe>",
        SANDBOXED,
        "<object width=600 height=200 type=text/html data=inner.html></object>",
        "<iframe width=600 height=200 src=http://localhost:8731/inner.html></iframe>",
    ],
    ids=["a file", "a sandbox", "an object", "another host"],
)
async def test_what_a_frame_of_another_origin_covers_is_not_listed(guest: Guest, frame: str) -> None:
    await guest("write_file", path="inner.html", data=f"<meta charset=utf-8>{FRAMED}".encode())
    folder = ""
    if "localhost" in frame:
        folder = "http://127.0.0.1:8731/"
        await guest("launch", argv=["python3", "-m", "http.server", "8731"])
    over = "<div id=over style='position:fixed;inset:0;background:#eee'><p style='margin:300px'>" + (
        "<button onclick='over.remove()'>Free</button></div>"
    )
    seen = await page(guest, "Frames", frame + over, folder)
    assert [*rows(seen, "push-button", "check-box")] == ["Free"]
    free = await click(guest, rows(seen, "push-button")["Free"])
    assert [*rows(free, "push-button", "check-box")] == ["Accept", "Fancy"]
    box = rows(free, "check-box")["Fancy"]
    assert "chk" in box.states
    assert "chk" not in rows(await click(guest, box), "check-box")["Fancy"].states


async def test_a_frame_is_seen_rightly_after_one_before_it_has_gone(guest: Guest) -> None:
    first = "<iframe id=first width=600 height=100 sandbox srcdoc='<button>First</button>'></iframe>"
    seen = await page(guest, "Gone", f"{first}<button onclick='first.remove()'>Less</button>{SANDBOXED}")
    assert {*rows(seen, "push-button", "check-box")} == {"First", "Less", "Accept", "Fancy"}
    less = await click(guest, rows(seen, "push-button")["Less"])
    assert {*rows(less, "push-button", "check-box")} == {"Less", "Accept", "Fancy"}


async def test_a_page_can_not_change_what_is_seen_of_it(guest: Guest) -> None:
    lies = (
        "<script>Document.prototype.elementFromPoint = () => document.body; Element.prototype.matches = null</script>"
    )
    seen = await page(guest, "Lies", lies + COVERED)
    assert [*rows(seen, "push-button")] == ["Accept"]
