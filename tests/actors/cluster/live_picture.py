"""Makes README's picture of the live page: `python -m tests.actors.cluster.live_picture URL FILE.png`.

Invariant: the picture is what a browser shows of a served run, once its wall of seats has screenshots.
"""

from __future__ import annotations

import asyncio
import base64
import sys
import tempfile
from pathlib import Path

from tests.actors.cluster.browser import browser

WIDTH, HEIGHT = 1180, 1186
SHOWN = "[...document.querySelectorAll('#wall img')].filter((one) => one.naturalWidth > 0).length > 1"


async def taken(url: str) -> bytes:
    """The page at `url` as PNG."""
    with tempfile.TemporaryDirectory() as profile:
        async with browser(Path(profile) / "profile") as page:
            await page.ask(
                "Emulation.setDeviceMetricsOverride", width=WIDTH, height=HEIGHT, deviceScaleFactor=1, mobile=False
            )
            await page.ask("Emulation.setScrollbarsHidden", hidden=True)
            await page.ask("Page.navigate", url=url)
            await page.until(SHOWN, within_s=60.0)
            await asyncio.sleep(2.0)  # the curves come with the next look
            return base64.b64decode((await page.ask("Page.captureScreenshot", format="png"))["data"])


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(asyncio.run(taken(sys.argv[1])))
