"""Makes README's pictures of the live page: `python -m tests.actors.cluster.live_picture URL FILE.png [learned]`.

Invariant: the picture is what a browser shows of a served run: the live page once its wall of seats has screenshots,
or with `learned` the first task before and after.
"""

from __future__ import annotations

import asyncio
import base64
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image, ImageChops

from tests.actors.cluster.browser import browser

WIDTH, HEIGHT = 1180, 1186
SHOWN = "[...document.querySelectorAll('#wall img')].filter((one) => one.naturalWidth > 0).length > 1"
TO_LEARNED = "(() => { const link = document.querySelector('#to-learned[href]'); link?.click(); return !!link; })()"
PAIR = """(() => {
  const pair = document.querySelector(".pair"), head = pair && pair.previousElementSibling.getBoundingClientRect();
  if (!pair || ![...pair.querySelectorAll("img")].every((one) => one.naturalWidth > 0)) return null;
  const height = pair.getBoundingClientRect().bottom - head.top + 16;
  return {x: 0, y: head.top - 8, width: innerWidth, height, scale: 1};
})()"""


async def taken(url: str, learned: bool) -> bytes:
    """The page at `url`, or the part of the page behind it that shows what was `learned`, as PNG."""
    with tempfile.TemporaryDirectory() as profile:
        async with browser(Path(profile) / "profile") as page:
            await page.ask(
                "Emulation.setDeviceMetricsOverride", width=WIDTH, height=HEIGHT, deviceScaleFactor=1, mobile=False
            )
            await page.ask("Emulation.setScrollbarsHidden", hidden=True)
            await page.ask("Page.navigate", url=url)
            part: dict[str, Any] = {}
            if learned:
                await page.until(TO_LEARNED, within_s=60.0)
                part = {"clip": await page.until(PAIR, within_s=60.0), "captureBeyondViewport": True}
            else:
                await page.until(SHOWN, within_s=60.0)
                await asyncio.sleep(2.0)  # the curves come with the next look
            png = base64.b64decode((await page.ask("Page.captureScreenshot", format="png", **part))["data"])
            return trimmed(png) if learned else png


def trimmed(png: bytes) -> bytes:
    """The same without the empty rows at its foot, but for a few."""
    shot = Image.open(BytesIO(png)).convert("RGB")
    ends = ImageChops.difference(shot, Image.new("RGB", shot.size, shot.getpixel((0, 0)))).getbbox()  # type: ignore[arg-type]
    cut, out = shot.crop((0, 0, shot.width, min(shot.height, ends[3] + 24) if ends else shot.height)), BytesIO()
    cut.save(out, "PNG", optimize=True)
    return out.getvalue()


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(asyncio.run(taken(sys.argv[1], "learned" in sys.argv[3:])))
