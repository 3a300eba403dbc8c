"""Serves the live page.

Invariant: no request changes a run. Every word of a guest, a model or a run is text in what is sent: as JSON that the
page writes by `textContent`, or escaped by a template. Who may ask is the guard's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import orjson
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CONTENT_TYPE_LATEST

from actors.cluster import tables
from actors.cluster.config.suggest import hint
from actors.cluster.report.episodes import learned
from actors.cluster.runs import run_folder
from actors.cluster.tables import TableCell, TextTable
from actors.cluster.views import episodes
from actors.cluster.views.episodes import Wanted
from actors.cluster.views.runs import format_line
from actors.cluster.web.shared_look import CrowdedError, RunMetrics, SharedLook, Thumbnails
from runtime.errors import ComputerRLError, ConfigError
from runtime.logs.reader import Filter, LogWatch
from runtime.program import program

MOST_LOG_READERS = 8
LOG_BYTES = 256 << 10  # of each file, before what comes
LOG_LINES = 400  # at most in a look; the oldest of more are left out, and the page says how many
LOOK_S = 1.0
SHOWN = 100  # episodes of a page
ENDINGS = ("success", "failure", episodes.FAULT)
BEFORE = "before"  # the token that a page of the list begins below
_ASSETS = {"live.js": "text/javascript", "live.css": "text/css", "icon.svg": "image/svg+xml"}
_EMPTY: dict[str, Any] = {
    "back": "", "live": False, "filters": {}, "links": {}, "at": "", "episode": None, "pairs": [],
    "rows": TextTable((), []),
    "nothing": "", "command": "",
}  # fmt: skip


class LiveServer:
    """The pages of the runs below a folder."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._looks: dict[Path, SharedLook] = {}
        self._thumbnails = Thumbnails()
        self._run_metrics = RunMetrics(runs)
        self._log_readers = 0
        self.app = web.Application(middlewares=[_lines])
        self.app.add_routes([
            web.get("/", self._index),
            web.get("/assets/{name}", self._asset),
            web.get("/metrics", self._metrics),
            web.get("/runs/{run}", self._run),
            web.get("/runs/{run}/live", self._live),
            web.get("/runs/{run}/logs", self._logs),
            web.get("/runs/{run}/learned", self._learned),
            web.get("/runs/{run}/episodes", self._episodes),
            web.get("/runs/{run}/episodes/{token:[0-9]{1,18}}", self._episode),
            web.get("/runs/{run}/pictures/{token:[0-9]{1,18}}.jpg", self._picture),
        ])  # fmt: skip
        self.app.on_shutdown.append(self._end)

    async def _end(self, _: web.Application) -> None:
        for watched in self._looks.values():
            await watched.close()
        self._run_metrics.close()

    async def _path(self, request: web.Request) -> Path:
        name = request.match_info["run"]
        runs = await asyncio.to_thread(lambda: {path.name: path for path, _ in run_folder.all_runs(self._runs)})
        if name not in runs:
            raise ConfigError(f"no run {name}; {hint(name, runs)}")
        return runs[name]

    async def _index(self, _: web.Request) -> web.Response:
        runs = await asyncio.to_thread(lambda: [*run_folder.all_runs(self._runs)][::-1])
        rows = [
            (TableCell(path.name, f"/runs/{path.name}"), run_folder.state(path, record), record.file, record.started,
             record.reason or "")
            for path, record in runs
        ]  # fmt: skip
        table = TextTable(("Run", "State", "File", "Started", "Why it ended"), rows)
        command = f"{program()} run smoke{run_folder.runs_flag(self._runs)}"
        return _page("Runs", rows=table, nothing="No run yet. A first one:", command=command)

    async def _asset(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in _ASSETS:
            raise web.HTTPNotFound
        content = (resources.files("actors.cluster.web") / name).read_text(encoding="utf-8")
        content = str(tables.style("colours.css")) + content if name.endswith(".css") else content
        return web.Response(text=content, content_type=_ASSETS[name], charset="utf-8")

    async def _metrics(self, _: web.Request) -> web.Response:
        text = await asyncio.to_thread(self._run_metrics.scrape)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _run(self, request: web.Request) -> web.Response:
        return _html(tables.render("live.html", title=(await self._path(request)).name))

    async def _live(self, request: web.Request) -> web.StreamResponse:
        path = await self._path(request)
        watched = self._looks.setdefault(path, SharedLook(path)).watch()
        try:
            first = await anext(watched)
        except CrowdedError as error:
            return web.Response(status=503, text=str(error))
        answer = await _begin_events(request)
        with contextlib.suppress(ConnectionError):
            await answer.write(first)
            async with contextlib.aclosing(watched):
                async for events in watched:
                    await answer.write(events)
        return answer

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        path = await self._path(request)
        wanted = Filter(**{name: request.query.get(name) or None for name in ("actor", "event", "trace", "level")})
        if self._log_readers >= MOST_LOG_READERS:
            return web.Response(status=503, text=f"{MOST_LOG_READERS} browsers read logs already")
        self._log_readers += 1
        watch = LogWatch(path, newest_bytes=LOG_BYTES)
        try:
            answer = await _begin_events(request)
            with contextlib.suppress(ConnectionError):
                while True:
                    lines = [line for line in await asyncio.to_thread(watch.new) if wanted.passes(line)]
                    left_out = max(0, len(lines) - LOG_LINES)
                    shown = [(line["level"], format_line(line)) for line in lines[left_out:]]
                    news = orjson.dumps({"lines": shown, "left_out": left_out})
                    await answer.write(b"event: lines\ndata: " + news + b"\n\n" if lines else b": nothing new\n\n")
                    await asyncio.sleep(LOOK_S)
        finally:
            self._log_readers -= 1
            watch.close()
        return answer

    async def _learned(self, request: web.Request) -> web.Response:
        path = await self._path(request)
        pairs = await asyncio.to_thread(learned, path)
        nothing = "Tasks show here that the first round missed and the last one solved, once two rounds are over."
        return await asyncio.to_thread(
            _page, path.name, heading="Before and after", path=path, pairs=pairs, nothing=nothing
        )

    async def _episodes(self, request: web.Request) -> web.Response:
        path = await self._path(request)
        listing = await asyncio.to_thread(_listing, path, request.query)
        return _page(path.name, heading=f"Episodes of {path.name}", path=path, **listing)

    async def _episode(self, request: web.Request) -> web.Response:
        path, wanted = await self._path(request), wanted_of(request.query)
        line, episode = await asyncio.to_thread(episodes.whole, path, request.match_info["token"])
        newer, older = await asyncio.to_thread(episodes.neighbours, path, line.token, wanted)
        at = f"/runs/{path.name}/episodes"
        ways = {"Newer": newer, "Older": older}
        links = {name: _address(f"{at}/{token}", wanted) for name, token in ways.items() if token is not None}
        links["List"] = _address(at, wanted)
        title = f"{path.name} {line.trace}"  # with its pictures the page has megabytes
        return await asyncio.to_thread(_page, title, heading=line.trace, path=path, episode=episode, links=links)

    async def _picture(self, request: web.Request) -> web.Response:
        made = await self._thumbnails.of(await self._path(request), int(request.match_info["token"]))
        if made is None:
            raise web.HTTPNotFound
        kept = {"Cache-Control": "private, max-age=3600, immutable"}
        return web.Response(body=made, content_type="image/jpeg", headers=kept)


def wanted_of(query: Mapping[str, str]) -> Wanted:
    """The episodes that the fields of a page ask for."""
    return Wanted(**{name: query.get(name) or None for name in Wanted.__struct_fields__})


def _listing(path: Path, query: Mapping[str, str]) -> dict[str, Any]:
    """Filters, a page of the list, and the way to older ones, as the template takes them. Raises ConfigError."""
    wanted, before = wanted_of(query), query.get(BEFORE, "")
    if before and not (before.isascii() and before.isdecimal() and len(before) < 19):
        raise ConfigError(f"{BEFORE} {before!a}: no token")
    lines = episodes.listed(path, wanted, SHOWN + 1, below=int(before) if before else None)
    shown, at = lines[:SHOWN], f"/runs/{path.name}/episodes"
    links = {"Newest": _address(at, wanted)} if before else {}
    if lines[SHOWN:]:
        links["Older"] = _address(at, wanted, **{BEFORE: str(shown[-1].token)})
    families, phases = episodes.known(path)
    filters = {"family": (families, wanted.family), "phase": (phases, wanted.phase), "ending": (ENDINGS, wanted.ending)}
    rows = episodes.table_of(shown, lambda one: _address(f"{at}/{one.token}", wanted))
    return {"rows": rows, "links": links, "at": at, "filters": filters, "nothing": "None is of these."}


def _address(path: str, wanted: Wanted, **more: str) -> str:
    asked = {name: value for name, value in msgspec.structs.asdict(wanted).items() if value} | more
    return f"{path}?{urlencode(asked)}" if asked else path


@web.middleware
async def _lines(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A wrong name is a line of text."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        return web.Response(status=error.status, text=error.reason)
    except ComputerRLError as error:
        return web.Response(status=404, text=str(error))


def _page(title: str, *, heading: str = "", path: Path | None = None, **values: object) -> web.Response:
    place = {"back": path.name, "live": run_folder.owner(path) is not None} if path is not None else {}
    return _html(tables.render("listing.html", title=title, heading=heading or title, **(_EMPTY | place | values)))


def _html(page: str) -> web.Response:
    return web.Response(text=page, content_type="text/html", charset="utf-8")


async def _begin_events(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    await answer.write(b"retry: 1000\n\n")
    return answer
