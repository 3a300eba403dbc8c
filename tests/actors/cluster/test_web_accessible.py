"""What people see in a browser: nothing that axe objects to, in light and dark, and nothing wider than a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.cluster.report import show
from actors.cluster.web import serve
from actors.front.person import PlayPage
from runtime.errors import ConfigError
from tests.actors.cluster.browser import Browser, browser
from tests.actors.cluster.fabricated import GOES_ON, Fabricated, jpeg, whole
from tests.actors.cluster.test_web import TOKEN, served

axe = pytest.importorskip("axe_core_python", reason="axe-core-python is of the extra dev")
PAGES = {  # what differs in its colours is looked at in both
    "light": (
        "/",
        "/runs/one",
        "/runs/one/episodes?phase=final",
        "/runs/one/episodes/203",
        "/runs/begun",
        "/runs/goes",
    ),
    "dark": ("/runs/one", "/runs/one/episodes/203"),
}
FOUND = "axe.run().then((found) => found.violations.map((one) => [one.id, one.nodes.map((node) => node.html)]))"
# Words broken into two lines, small letters, and tables whose columns lie outside of the window.
WORDS = "h1, h2, h3, th, dt, dd, figcaption, label, svg text, .wide"
UNREADABLE = """[...document.querySelectorAll(WORDS)].flatMap((box) => {
  const size = parseFloat(getComputedStyle(box).fontSize), picture = box.ownerSVGElement;
  const shown = picture ? size * picture.getBoundingClientRect().width / picture.viewBox.baseVal.width : size;
  if (box.classList.contains("wide")) return box.scrollWidth > box.clientWidth + 40 ? [box.innerText] : [];
  const broken = [...box.childNodes].filter((node) => node.nodeType === 3).flatMap((node) =>
    [...node.data.matchAll(/[A-Za-z,]{2,22}/g)].filter((word) => {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      return new Set([...range.getClientRects()].map((one) => Math.round(one.top))).size > 1;
    }).map((word) => word[0]));
  return shown < 8.5 && box.textContent.trim() ? [...broken, `${box.textContent}: ${shown} px`] : broken;
})""".replace("WORDS", repr(WORDS))
PAPER = {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 24, 26)"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("runs")
    Fabricated(folder / "begun", verdict=None).done()
    going = Fabricated(folder / "goes", verdict=GOES_ON)
    going.learn()
    going.play(1, "after_bc", "0.2", [True, False])
    going.done()
    show.show([whole(folder / "one")], folder / "report", as_json=True)
    yield folder
    going.owner.end("ok", None)


async def looked_at(page: Browser, address: str, named: str) -> None:
    await page.ask("Page.navigate", url=address)
    await page.until(f"location.href === '{address}' && document.readyState === 'complete'")
    await page.until("document.getElementById('state')?.textContent !== '...'")  # a live page has been filled
    await page.until("document.getElementById('prompt')?.textContent !== ''")  # or the page of a played desktop
    await page.eval(Path(axe.__file__).with_name("axe.min.js").read_text() + ";0")
    assert await page.eval(FOUND) == [], named
    assert await page.eval("document.documentElement.scrollWidth <= window.innerWidth"), named
    assert await page.eval(UNREADABLE) == [], named


def played() -> PlayPage:
    page = PlayPage("Rename a.txt", 9)
    page._picture = jpeg()
    page._state |= {"look": 1, "prompt": "e1 icon a.txt", "elements": [["e1", 9, 9, 90, 20]], "screen": [1280, 720]}
    return page


@pytest.mark.proof
@pytest.mark.parametrize("width", [390, 1280])
async def test_pages_are_accessible_in_both_schemes_on_a_phone_and_a_desk(
    runs: Path, tmp_path: Path, width: int
) -> None:
    async with browser(tmp_path / "profile") as page, served(runs) as at, played().served(0) as hand:
        await page.ask("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        for first in (f"{at}/?token={TOKEN}", hand):
            await page.ask("Page.navigate", url=first)
            await page.until("location.search === '' && document.readyState === 'complete'")
        for scheme, paper in PAPER.items():
            wanted = [{"name": "prefers-color-scheme", "value": scheme}]
            await page.ask("Emulation.setEmulatedMedia", features=wanted)
            for path in PAGES[scheme]:
                await looked_at(page, at + path, f"{path} in {scheme} at {width}")
                assert await page.eval("getComputedStyle(document.body).backgroundColor") == paper
            for address in (f"file://{runs / 'report' / 'report.html'}", hand.partition("?")[0]):
                await looked_at(page, address, f"{address} in {scheme} at {width}")


def test_a_page_beside_a_run_that_does_not_begin_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "START_S", 0.0)
    refused = pytest.raises(ConfigError, match=r"^--web 0: the page did not begin within 0 s$")
    with refused, serve.live_page(tmp_path, "", 0):
        pass
