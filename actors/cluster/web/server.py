"""Serves the live page.

Invariant: no request changes a run. Every word of a guest, a model or a run is text in what is sent: as JSON that the
page writes by `textContent`, or escaped by `report.html`. Who may ask is `runtime.http`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
from importlib import resources
from pathlib import Path

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CONTENT_TYPE_LATEST

from actors.cluster.config.suggest import hint
from actors.cluster.output import duration
from actors.cluster.report import page as pages
from actors.cluster.report.html import Markup, document, join, table, tag
from actors.cluster.runs import run_folder
from actors.cluster.views import logs
from actors.cluster.web import episode_pages
from actors.cluster.web.metrics import RunMetrics
from actors.cluster.web.shared_look import CrowdedError, SharedLook
from actors.cluster.web.thumbnails import Thumbnails
from runtime.control import query_status
from runtime.errors import ActorGone, ComputerRLError, ConfigError
from runtime.logs.reader import Filter, LogWatch
from runtime.program import program
from runtime.waits import ActorStatus

MOST_LOG_READERS = 8
LOG_BYTES = 256 << 10  # of each file, before what comes
LOG_LINES = 400  # at most in a look; the oldest of more are left out, and the page says how many
LOOK_S = 1.0
WAITS = "Who waits for whom"
_ASSETS = {"live.js": "text/javascript", "live.css": "text/css", "icon.svg": "image/svg+xml"}


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
            web.get("/runs/{run}/actors", self._actors),
            web.get("/runs/{run}/episodes", self._episodes),
            web.get("/runs/{run}/episodes/{token:[0-9]{1,18}}", self._episode),
            web.get("/runs/{run}/pictures/{token:[0-9]{1,18}}.jpg", self._picture),
        ])  # fmt: skip
        self.app.on_shutdown.append(self._end)

    async def _end(self, _: web.Application) -> None:
        for watched in self._looks.values():
            await watched.close()
        self._run_metrics.close()

    def _path(self, request: web.Request) -> Path:
        name = request.match_info["run"]
        if name not in (known := {path.name: path for path, _ in run_folder.all_runs(self._runs)}):
            raise ConfigError(f"no run {name}; {hint(name, known)}")
        return known[name]

    async def _index(self, _: web.Request) -> web.Response:
        found = await asyncio.to_thread(lambda: [*run_folder.all_runs(self._runs)][::-1])
        rows = [
            (tag("a", path.name, href=f"/runs/{path.name}"), run_folder.state(path, record), record.file,
             record.started, record.reason or "")
            for path, record in found
        ]  # fmt: skip
        begin = f"{program()} run smoke{run_folder.runs_flag(self._runs)}"
        none = tag("p", "No run yet: ", tag("code", begin), " makes one.")
        body = table(("Run", "State", "File", "Started", "Why it ended"), rows) if rows else none
        return _html(_live_page("Runs", join([tag("h1", "Runs"), body]), script=False))

    async def _asset(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in _ASSETS:
            raise web.HTTPNotFound
        content = (resources.files("actors.cluster.web") / name).read_text(encoding="utf-8")
        content = pages.style_sheet("colours.css") + content if name.endswith(".css") else content
        return web.Response(text=content, content_type=_ASSETS[name], charset="utf-8")

    async def _metrics(self, _: web.Request) -> web.Response:
        text = await asyncio.to_thread(self._run_metrics.scrape)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _run(self, request: web.Request) -> web.Response:
        path = await asyncio.to_thread(self._path, request)
        body = (resources.files("actors.cluster.web") / "live.html").read_text(encoding="utf-8")
        return _html(_live_page(path.name, Markup(body), script=True))

    async def _live(self, request: web.Request) -> web.StreamResponse:
        path = await asyncio.to_thread(self._path, request)
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
        path = await asyncio.to_thread(self._path, request)
        asked = {name: request.query.get(name) or None for name in ("actor", "event", "trace", "level")}
        wanted = Filter(**asked)
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
                    told = [(line["level"], logs.format_line(line)) for line in lines[left_out:]]
                    said = orjson.dumps({"lines": told, "left_out": left_out})
                    await answer.write(b"event: lines\ndata: " + said + b"\n\n" if lines else b": nothing new\n\n")
                    await asyncio.sleep(LOOK_S)
        finally:
            self._log_readers -= 1
            watch.close()
        return answer

    async def _actors(self, request: web.Request) -> web.Response:
        """Who waits for whom since when: the one page that asks the run itself, as `computerrl status` does."""
        path = await asyncio.to_thread(self._path, request)
        try:
            found = await asyncio.to_thread(query_status, path) if run_folder.owner(path) is not None else []
        except ActorGone as error:
            return _html(
                _live_page(
                    path.name, join([_head(path, WAITS), tag("p", f"It does not answer: {error}")]), script=False
                )
            )
        away = any(actor.machine for actor in found)
        heads = ("Actor", *["Machine"] * away, "State", "Restarts", "Busy with", "Waits")
        rows = [
            (actor.name, *[actor.machine or "this one"] * away, actor.state, actor.restarts, *_doing(actor))
            for actor in found
        ]
        body = table(heads, rows) if rows else tag("p", "The run is not running: no actor is there to ask.")
        return _html(_live_page(path.name, join([_head(path, WAITS), body]), script=False))

    async def _episodes(self, request: web.Request) -> web.Response:
        path = await asyncio.to_thread(self._path, request)
        body = await asyncio.to_thread(episode_pages.listing, path, request.query)
        return _html(_live_page(path.name, join([_head(path, f"Episodes of {path.name}"), body]), script=False))

    async def _episode(self, request: web.Request) -> web.Response:
        path = await asyncio.to_thread(self._path, request)
        trace, body = await asyncio.to_thread(episode_pages.one, path, request.match_info["token"], request.query)
        return _html(_live_page(f"{path.name} {trace}", join([_head(path, trace), body]), script=False))

    async def _picture(self, request: web.Request) -> web.Response:
        path = await asyncio.to_thread(self._path, request)
        made = await self._thumbnails.of(path, int(request.match_info["token"]))
        if made is None:
            raise web.HTTPNotFound
        kept = {"Cache-Control": "private, max-age=3600, immutable"}
        return web.Response(body=made, content_type="image/jpeg", headers=kept)


@web.middleware
async def _lines(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A wrong name is a line of text."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        return web.Response(status=error.status, text=error.reason)
    except ComputerRLError as error:
        return web.Response(status=404, text=str(error))


def _doing(actor: ActorStatus) -> tuple[str, str]:
    wait = max(actor.waits, key=lambda found: found.waited_s, default=None)
    busy = f"{actor.current} {duration(actor.busy_s)}" if actor.current else actor.doing
    return busy, f"{duration(wait.waited_s)} for {wait.what} from {wait.whom}" if wait else ""


def _head(path: Path, title: str) -> Markup:
    """The way back, and the page's own heading."""
    live = ", live" if run_folder.owner(path) is not None else ""
    return join([tag("p", tag("a", f"{path.name}{live}", href=f"/runs/{path.name}")), tag("h1", title)])


def _live_page(title: str, body: Markup, *, script: bool) -> str:
    """A page with the style of the report and the live page's own; `script` for the page that follows a run."""
    links = [Markup('<link rel="icon" href="/assets/icon.svg"><link rel="stylesheet" href="/assets/live.css">')]
    links += [Markup('<script src="/assets/live.js" defer></script>')] * script
    return document(title, links, tag("main", body))


def _html(page: str) -> web.Response:
    return web.Response(text=page, content_type="text/html", charset="utf-8")


async def _begin_events(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    await answer.write(b"retry: 1000\n\n")
    return answer
