"""The live page: it shows what a run writes, changes nothing of it, and no word of a guest becomes markup."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from actors.cluster.report import time_spent
from actors.cluster.runs import evaluation_rounds, execute, run_folder
from actors.cluster.runs.run_reader import EVALUATION, LOST, RunReader
from actors.cluster.web import shared_look
from actors.cluster.web.serve import live_page
from actors.cluster.web.server import LiveServer
from actors.cluster.web.shared_look import SharedLook
from actors.replay.database.ledger_file import connect
from runtime.errors import ConfigError
from runtime.http import Guard, bearer
from runtime.http import served as guarded
from tests.actors.cluster.browser import browser
from tests.actors.cluster.fabricated import GOES_ON, HOSTILE, Fabricated, Reader, whole

TITLE = "<img src=x onerror=\"document.title='run'\">"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return whole(tmp_path / "runs" / "one")


TOKEN = "a-token-of-the-tests"


@contextlib.asynccontextmanager
async def served(runs: Path, port: int = 0) -> AsyncIterator[str]:
    guard = Guard(token=TOKEN, pages=True)
    async with guarded(LiveServer(runs).app, guard, port, flag="--port", end_s=0.1) as bound:
        yield f"http://127.0.0.1:{bound}"


async def got(url: str, **options: Any) -> tuple[int, str, Any]:
    session = aiohttp.ClientSession(headers=bearer(TOKEN))
    async with session, session.get(url, allow_redirects=False, **options) as reply:
        return reply.status, (await reply.read()).decode(errors="replace"), reply.headers


def logged(run: Path, event: str, ago_s: float = 0.0, **fields: Any) -> None:
    """Add a line to the log of a run."""
    ts = (datetime.now(UTC) - timedelta(seconds=ago_s)).isoformat()
    line = {"ts": ts, "level": "info", "actor": "main", "event": event, **fields}
    with (run / "logs" / "x.jsonl").open("ab") as file:
        file.write(orjson.dumps(line) + b"\n")


def reserve(run: Path, number: int, task: str) -> None:
    db, _ = connect(run / "ledger.sqlite")
    with contextlib.closing(db):
        db.execute(
            "INSERT INTO reservations(token, request_id, seat, lane, task, stay, group_id, slot, state, expires, reply)"
            " VALUES(?, ?, ?, 'train', ?, 1, 1, 0, 'out', 9e9, '')",
            (1000 + number, str(number), f"desktop/{number}", task),
        )


async def test_pages_hold_the_words_of_guests_as_text(run: Path) -> None:
    async with served(run.parent) as at:
        for path in ("/", "/runs/one/episodes", "/runs/one/episodes/203"):
            status, page, headers = await got(at + path)
            assert (status, "<script>" in page) == (200, False)
            assert "script-src 'self'" in headers["Content-Security-Policy"]
            assert headers["X-Content-Type-Options"] == "nosniff"
            Reader(re.sub(r'<link rel="(icon|stylesheet)" href="/assets/[a-z.]+">', "", page))
        status, _, headers = await got(f"{at}/runs/one/pictures/203.jpg")
        assert (status, headers["Content-Type"]) == (200, "image/jpeg")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/runs/onf", "no run onf; did you mean one?"),
        ("/runs/one/episodes?before=x", "before 'x': no token"),
        ("/runs/one/episodes/9", "9: no such episode in one"),
        ("/runs/one/pictures/9.jpg", "Not Found"),
        ("/runs/..%2F..%2Fetc/live", "no run ../../etc"),
        ("/runs/one/logs?level=loud", "log level 'loud' is none of"),
    ],
)
async def test_what_is_not_there_is_a_line(run: Path, path: str, expected: str) -> None:
    async with served(run.parent) as at:
        status, said, _ = await got(at + path)
    assert (status, expected in said) == (404, True)


def test_looking_changes_nothing(run: Path) -> None:
    def files() -> dict[Path, bytes]:  # without those that SQLite makes beside a ledger for its readers
        return {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and "sqlite-" not in path.name}

    before = files()
    reader = RunReader(run)
    first, second = reader.look(), reader.look()
    reader.close()
    assert first == second
    assert (first.phase, first.steps, len(first.curve)) == ("rl", {"rl": 6}, 6)
    assert [(one.name, one.successes) for one in first.rounds] == [("after_bc", 2), ("final", 5)]
    for shown, told in zip(first.rounds, evaluation_rounds.read_rounds(run), strict=True):
        assert (shown.low, shown.high) == pytest.approx(told.summary.whole.all.interval, abs=1e-3)
    assert [(one.name, one.token) for one in first.seats] == [("desktop/0", 205)]
    assert files() == before


def test_a_run_that_only_plays_a_round_is_in_no_phase_of_training(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folder.RunRecord, "of_eval", property(lambda _: True))
    reader = RunReader(run)
    now = reader.look()
    reader.close()
    assert (now.phase, now.done, now.whole) == (EVALUATION, 6, now.rounds[-1].planned)
    going = msgspec.structs.replace(now.rounds[-1], closed=False)
    shown = dict(execute.cells(msgspec.structs.replace(now, rounds=[going]), 1))
    assert shown.items() >= {"phase": EVALUATION, "episodes": f"6/{now.whole}", "held-out": "0.83"}.items()
    opened = {"event": "eval_round_opened", "t": 1.0, "round": "eval", "version": "0.0"}
    assert time_spent.phases([opened]).at(2.0) == EVALUATION


def test_a_look_reads_what_is_new(run: Path) -> None:
    logged(run, "host_rests", actor="desktop/7", cause="boot_failed", faults=3)
    logged(run, "seat_time", actor="desktop/7", t0=1, t1=2, seconds={"acting": 1.0})
    for event, name, machine in (
        ("host_started", "ranks/0", ""), ("host_started", "ranks/1", "gpu-1"), ("host_started", "desktops/0", "m2"),
        ("host_started", "desktops/1", "m3"), ("host_lost", "desktops/0", "m2"), ("host_stopping", "desktops/1", "m3"),
    ):  # fmt: skip
        logged(run, event, name=name, machine=machine)
    reader = RunReader(run)
    assert reader.look().quarantine == {"host desktop/7": "boot_failed"}
    assert reader.look().machines == {"ranks/0": "", "ranks/1": "gpu-1", "desktops/0": LOST}
    reserve(run, 7, "calc/train/1")
    found = reader.look()
    assert [(one.name, one.trace) for one in found.seats][1] == ("desktop/7", "g1.0")
    assert found.stages_s == {"acting": 1.0}
    logged(run, "host_let_back", actor="desktop/7")
    assert reader.look().quarantine == {}
    reader.close()


def going_on(run: Path, name: str = "two") -> run_folder.RunFolder:
    """A run that goes on, with the ledger, the logs and the settings of `run`."""
    record = run_folder.read_record(run)
    record.verdict, record.started_s = None, time.time() - 600
    going = run_folder.claim(run.parent / name, record, resume=False)
    shutil.copytree(run, going.path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("run.json", "lock"))
    going.save()
    return going


def test_a_run_says_its_pace_and_how_long_its_phase_takes(run: Path) -> None:
    going = going_on(run)
    db, _ = connect(going.path / "ledger.sqlite")
    with contextlib.closing(db):
        stay = db.execute("SELECT max(idx) FROM stays").fetchone()[0]
        db.execute("UPDATE stays SET step_limit = 26 WHERE idx = ?", (stay,))
        for n, (lease,) in enumerate(
            db.execute("SELECT id FROM leases WHERE state = 'trained' ORDER BY id").fetchall()
        ):
            db.execute("UPDATE leases SET wall = ?, stay = ? WHERE id = ?", (1000.0 + 3 * n, stay, lease))
        db.execute("INSERT OR REPLACE INTO stay_steps VALUES(?, 6)", (stay,))
    for ago_s in (90, 30, 20, 10):
        logged(going.path, "episode_ended", ago_s)
    reader = RunReader(going.path)
    found = reader.look()
    assert (found.phase, found.done, found.whole, found.left_s) == ("rl", 6, 26, 60.0)
    assert found.episodes_per_min == 3.0, "at the first look"
    going.end("stopped", None)
    found = reader.look()
    assert (found.left_s, found.episodes_per_min) == (None, None), "what has ended has neither"
    reader.close()


def test_the_pace_of_samplers_is_what_the_router_logs(run: Path) -> None:
    reader = RunReader(run)
    db, _ = connect(run / "ledger.sqlite")
    with contextlib.closing(db):
        db.execute("INSERT OR REPLACE INTO samplers VALUES('sampler/0', '0.3', 0)")
    assert reader.look().samplers[0].tokens_s is None, "no line yet"
    for ago_s, drawn in ((120, {"sampler/0": 10}), (1, {"sampler/0": 600})):
        logged(run, "routed", ago_s, actor="router", span_s=30.0, drawn=drawn, outstanding={"sampler/0": 5})
    assert [(one.tokens, one.tokens_s) for one in reader.look().samplers] == [(610, 20.0)]
    reader.close()


async def test_viewers_share_looks_and_get_what_changed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_look, "LOOK_S", 0.05)
    looks = []
    look = RunReader.look
    monkeypatch.setattr(RunReader, "look", lambda self: (looks.append(1), look(self))[1])
    watched = SharedLook(run)
    viewers = [watched.watch() for _ in range(20)]
    first = await asyncio.gather(*map(anext, viewers))
    assert first == [first[0]] * 20
    assert b"event: run" in first[0]
    assert len(looks) < 10
    reserve(run, 3, TITLE)
    said = await anext(viewers[0])
    while b"event: seats" not in said:
        said = await anext(viewers[0])
    assert b"desktop/3" in said
    assert b"desktop/0" not in said  # it is as it was
    slow = await anext(viewers[1])  # what it missed comes at once
    assert b"desktop/3" in slow
    for one in viewers:
        await one.aclose()
    seen = len(looks)
    await asyncio.sleep(0.3)
    assert len(looks) == seen  # the last viewer ended the looking


@pytest.mark.slow
async def test_a_browser_follows_a_run_through_a_restart_of_the_server(run: Path, tmp_path: Path) -> None:
    async with browser(tmp_path / "profile") as page:
        async with served(run.parent) as at:
            await page.ask(
                "Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=False
            )
            await page.ask("Page.navigate", url=f"{at}/runs/one?token={TOKEN}")
            await page.until("document.getElementById('wall')?.childElementCount === 1")
            assert await page.eval("document.title") == "one ok"
            said = await page.eval("document.body.textContent")
            assert "waits for work" not in said, "it has ended"
            assert "episodes a minute" not in said
            assert "play. A seat" not in said
            assert "left in this phase" not in said
            assert await page.eval("document.getElementById('held').textContent.startsWith('0.833 (5 of 6 episodes)')")
            assert await page.eval("document.querySelector('#held-curve svg text') !== null"), "its axes have numbers"
            await page.until("document.getElementById('logs').textContent.includes('episode_ended')")
            assert await page.eval("document.documentElement.scrollWidth <= window.innerWidth")
            reserve(run, 3, TITLE)
            await page.until("document.getElementById('wall').childElementCount === 2")
            assert await page.eval("document.querySelectorAll('#wall .busy').length") == 0, "it has ended"
            await page.eval("document.getElementById('wall').scrollIntoView()")
            await page.until("document.querySelector('#wall img').naturalWidth > 0")
        await page.until("!document.getElementById('trouble').hidden")
        going = Fabricated(run.parent / "goes", verdict=GOES_ON)
        reserve(going.done(), 3, TITLE)
        async with served(run.parent, port=int(at.rpartition(":")[2])):
            await page.until("document.getElementById('trouble').hidden")
            await page.ask("Page.navigate", url=f"{at}/runs/goes")
            await page.until("document.querySelectorAll('#wall .busy').length === 1")
            assert TITLE in await page.eval("document.getElementById('wall').textContent")
            assert await page.eval("document.querySelectorAll('#wall img[src=x]').length") == 0
            await page.ask("Page.navigate", url=f"{at}/runs/one")
            await page.until("document.getElementById('wall')?.childElementCount === 2")
            await page.eval("document.querySelector('#filter [name=event]').value = 'no_such'")
            await page.eval("document.querySelector('#filter button').click()")
            await page.until("document.getElementById('logs').textContent === ''")
            await page.eval("document.querySelector('#wall a').click()")
            await page.until("document.querySelector('article h2') !== null")
            assert HOSTILE.partition("&")[0] in await page.eval("document.body.textContent")
            assert await page.eval("document.querySelectorAll('script').length") == 0
    going.owner.end("ok", None)


async def test_prometheus_reads_runs_that_go_on(run: Path) -> None:
    record = run_folder.read_record(run)
    going = run_folder.claim(run.parent / "two", record, resume=False)
    shutil.copy(run / "ledger.sqlite", going.path)
    async with served(run.parent) as at:
        status, text, _ = await got(f"{at}/metrics")
        assert status == 200
        families = {one.name: one for one in text_string_to_metric_families(text)}
        assert [one.labels for one in families["computerrl_optimizer_steps"].samples] == [{"run": "two", "phase": "rl"}]
        assert families["computerrl_entropy_nats"].samples[0].value == 0.125  # as the report has it
        for name, family in families.items():  # what `promtool check metrics` asks for
            assert re.fullmatch(r"computerrl(_[a-z]+)+", name)
            assert family.documentation.endswith(".")
            assert not re.search(r"_(total|count|sum|bucket|info|counter|gauge|ms|minutes|percent|mib)$", name)
            assert all(one.name == f"{name}_total" * (family.type == "counter") or name for one in family.samples)
        board = (Path(__file__).parents[3] / "deploy" / "grafana.json").read_text()
        shown = set(re.findall(r"computerrl_[a-z_]+", board))
        assert {name.removesuffix("_total") for name in shown} <= families.keys()
        going.end("ok", None)
        assert 'run="two"' not in (await got(f"{at}/metrics"))[1]


@pytest.mark.slow
async def test_a_page_beside_a_run_ends_with_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with live_page(run.parent, "one", 0):
        address = capsys.readouterr().out.strip().removeprefix("live page: ")
        address, _, token = address.partition("?token=")
        assert address.endswith("/runs/one")
        assert (await got(address))[0] == 401, "the tests' token is not this page's"
        assert (await got(f"{address}?token={token}"))[0] == 303
        assert (await got(address, headers=bearer(token)))[0] == 200
        port = int(address.split(":")[2].partition("/")[0])
        with pytest.raises(ConfigError, match=f"--web {port}: can't be served"), live_page(run.parent, "one", port):
            pass
    with pytest.raises(aiohttp.ClientConnectorError):
        await got(address)


async def test_episodes_are_filtered_and_turned_page_by_page(run: Path) -> None:
    async with served(run.parent) as at:
        listed = (await got(f"{at}/runs/one/episodes"))[1]
        stored = re.findall(r'href="/runs/one/episodes/(\d+)"', listed)
        assert len(stored) > 2
        assert '<option value="final">' in listed
        chosen = (await got(f"{at}/runs/one/episodes?phase=final&ending=failure"))[1]
        assert 0 < chosen.count("<tr>") < listed.count("<tr>")
        assert '<option value="final" selected>' in chosen
        assert f"/runs/one/episodes/{stored[1]}?phase=final" not in chosen or "phase=final&amp;ending=failure" in chosen
        middle = (await got(f"{at}/runs/one/episodes/{stored[1]}"))[1]
        assert f'<a href="/runs/one/episodes/{stored[0]}">Newer</a>' in middle
        assert f'<a href="/runs/one/episodes/{stored[2]}">Older</a>' in middle
        assert "one, live" not in middle, "it has ended"
        first = (await got(f"{at}/runs/one/episodes/{stored[0]}"))[1]
        assert "Newer" not in first
        assert (await got(f"{at}/assets/icon.svg"))[0] == 200
