"""What people see in a browser: nothing that axe objects to, in light and dark, and nothing wider than a phone."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.cluster import cli
from actors.cluster.report import show
from actors.cluster.web import serve
from actors.front.person import PlayPage
from runtime.errors import ConfigError
from tests.actors.cluster.browser import Browser, browser
from tests.actors.cluster.fabricated import jpeg, whole
from tests.actors.cluster.test_web import TOKEN, served

axe = pytest.importorskip("axe_core_python", reason="axe-core-python is of the extra dev")
PAGES = {  # what differs in its colours is looked at in both
    "light": ("/", "/runs/one", "/runs/one/episodes?phase=final", "/runs/one/episodes/203"),
    "dark": ("/runs/one", "/runs/one/episodes/203"),
}
FOUND = "axe.run().then((found) => found.violations.map((one) => [one.id, one.nodes.map((node) => node.html)]))"
PAPER = {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 24, 26)"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    show.show([whole(folder / "one")], folder / "report", as_json=True)
    return folder


async def looked_at(page: Browser, address: str, named: str) -> None:
    await page.ask("Page.navigate", url=address)
    await page.until(f"location.href === '{address}' && document.readyState === 'complete'")
    await page.until("document.getElementById('wall')?.childElementCount !== 0")  # a live page has been filled
    await page.until("document.getElementById('prompt')?.textContent !== ''")  # or the page of a played desktop
    await page.eval(Path(axe.__file__).with_name("axe.min.js").read_text() + ";0")
    assert await page.eval(FOUND) == [], named
    assert await page.eval("document.documentElement.scrollWidth <= window.innerWidth"), named


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


def test_a_page_beside_a_run_is_refused_where_it_can_not_be_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", "smoke", "--web", "70000"]) == 2
    assert "--web 70000: it is between 0 and 65535" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["run", "smoke", "--web", "--dry-run"])
    assert "--web goes with a run that is started" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["run", "--web", "smoke"])
    assert "--web: smoke is no port; where it is FILE, put it before --web" in capsys.readouterr().err
    monkeypatch.setattr(serve, "START_S", 0.0)
    with (
        pytest.raises(ConfigError, match=r"^--web 0: the page did not begin within 0 s$"),
        serve.live_page(tmp_path, "", 0),
    ):
        pass
