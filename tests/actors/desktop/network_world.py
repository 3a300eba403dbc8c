"""A small Internet: `python -m tests.actors.desktop.network_world FOLDER KIND`, in namespaces of its own.

Its one public address is this machine's loopback in there. Servers of ours answer at two names; what a desktop saw of
them live, while they were recorded, and once they were gone, is printed as one JSON document.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

from aiohttp import web

from actors.desktop.config import ContainerConfig, DesktopsConfig, NetworkConfig, PoolConfig, SandboxConfig
from actors.desktop.network import NETWORK_REFUSED
from actors.desktop.pool.leased import LeasedDesktop
from actors.desktop.pool.pool import DesktopPool
from tests.heard import Heard

ADDRESS = "93.184.215.14"
HOSTS = f"""{ADDRESS} pages.example.org secure.example.org
10.1.2.3 inside.example.org
169.254.169.254 meta.example.org
"""
ALLOW = ["*.example.org"]
# What a program of the desktop is answered, without and with encryption.
ASK = """
import ssl, sys, urllib.request
for url in sys.argv[1:]:
    try:
        with urllib.request.urlopen(url, timeout=20, context=ssl._create_unverified_context()) as page:
            print(page.status, page.read(100).decode().strip())
    except Exception as error:
        print(getattr(error, "code", type(error).__name__), str(error)[:80])
"""
URLS = [
    "http://pages.example.org/a", "https://secure.example.org/b", "http://inside.example.org/",
    "http://meta.example.org/latest", "http://other.org/", "http://127.0.0.1:1/", "http://10.1.2.3/",
    "http://pages.example.org:22/", "http://nowhere.example.org/",
]  # fmt: skip


def certificates(folder: Path) -> None:
    """An authority of the world's own, and a certificate of its encrypted name."""
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    own = ("-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=world")
    page = ("-CA", "ca.pem", "-CAkey", "ca.key", "-keyout", "key", "-out", "pem", "-subj", "/CN=page")
    names = ("-addext", "subjectAltName=DNS:secure.example.org", "-addext", "basicConstraints=critical,CA:FALSE")
    for words in (own, (*page, *names)):
        subprocess.run(["openssl", "req", "-x509", *curve, *words], cwd=folder, check=True, capture_output=True)


async def serving(folder: Path, asked: list[str]) -> web.AppRunner:
    async def page(request: web.Request) -> web.Response:
        asked.append(f"{request.scheme}://{request.host}{request.path}")
        title = request.path.strip("/") or "front"
        return web.Response(text=f"<title>{title} {len(asked)}</title>{title} page", content_type="text/html")

    app = web.Application()
    app.router.add_get("/{tail:.*}", page)
    runner = web.AppRunner(app)
    await runner.setup()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "pem", folder / "key")
    await web.TCPSite(runner, ADDRESS, 80).start()
    await web.TCPSite(runner, ADDRESS, 443, ssl_context=context).start()
    return runner


async def seen(folder: Path, kind: str, mode: Any, urls: list[str], shown: list[str]) -> dict[str, Any]:
    """What a desktop's program is answered, the titles that its browser shows, and what was refused."""
    heard = Heard()
    network = NetworkConfig(mode=mode, allow=ALLOW, tape="" if mode == "live" else str(folder / "tape"))
    runc, place = "runc" if shutil.which("runc") else "", str(folder / "state")
    provider = ContainerConfig(state_dir=place, runtime=runc) if kind == "container" else SandboxConfig(state_dir=place)
    config = DesktopsConfig(provider=provider, pool=PoolConfig(warm_pool=0), network=network)
    pool = await DesktopPool.open(config, folder / "run", heard)
    try:
        desktop = LeasedDesktop(await pool.acquire(60))
        run = {"argv": ["python3", "-c", ASK, *urls], "timeout_ms": 60_000}
        said = (await desktop.call("run", run, 70)).out
        titles = []
        for url in shown:
            found = {"argv": ["chromium", url], "title": "", "timeout_ms": 40_000}
            await desktop.call("open_window", found, 60)
            titles.append("")
            for _ in range(40):
                rows = await desktop.call("windows", {}, 20)
                titles[-1] = next((row.title for row in rows if row.class_.lower().startswith("chromium")), "")
                if titles[-1].startswith("page"):
                    break
                await asyncio.sleep(0.5)
        return {
            "said": said.splitlines(),
            "titles": titles,
            "refused": sorted(f"{event['host']}: {event['why']}" for event in heard.of(NETWORK_REFUSED)),
        }
    finally:
        await pool.close()


async def world(folder: Path, kind: str) -> dict[str, Any]:
    asked: list[str] = []
    pages = ["http://pages.example.org/page1", "https://secure.example.org/page2"]
    server = await serving(folder, asked)
    found = {"live": await seen(folder, kind, "live", URLS, [])}
    found["record"] = await seen(folder, kind, "record", URLS[:3], pages)
    await server.cleanup()
    asked.clear()
    found["replay"] = await seen(folder, kind, "replay", [*URLS[:3], "http://pages.example.org/new"], pages)
    found["asked in replay"] = asked
    return found


def main(folder: Path, kind: str) -> None:
    """Make the world, then start again where its authority is trusted, and print what was seen in it."""
    if os.environ.get("SSL_CERT_FILE") == str(folder / "ca.pem"):
        sys.stdout.write(json.dumps(asyncio.run(world(folder, kind))))
        return
    (folder / "hosts").write_text(HOSTS)
    for words in (
        ["ip", "link", "set", "lo", "up"], ["ip", "address", "add", f"{ADDRESS}/32", "dev", "lo"],
        ["mount", "--bind", str(folder / "hosts"), "/etc/hosts"],
    ):  # fmt: skip
        subprocess.run(words, check=True)
    certificates(folder)
    os.environ["SSL_CERT_FILE"] = str(folder / "ca.pem")
    os.execv(sys.executable, [sys.executable, "-m", __spec__.name, str(folder), kind])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
