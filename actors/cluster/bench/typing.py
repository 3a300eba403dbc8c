"""`bench typing`: whether what is typed stands there while the machine is busy, and what a keystroke costs.

Invariant: a text counts as exact only when the application itself gives back all of it. A text that is not exact,
though typing reported that it was, fails the bench. So do lines that an application has corrected.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import msgspec

from actors.cluster import output
from actors.cluster.bench import stage
from actors.cluster.bench.corpus import CORPUS, ONE_LINE
from actors.cluster.bench.fields import FIELDS, FILE, PAGE, PAGE_FILE, REST, SHEET, Field, press
from actors.cluster.bench.report import median
from actors.cluster.config.suggest import hint
from actors.desktop.link import GuestLink, LinkDown
from actors.desktop.providers.sandbox.provider import SandboxProvider
from actors.errors import DesktopFault, GuestRefused
from apis.plans.action import typed
from runtime.errors import ConfigError

FIRST, LAST = 0x4E00, 0x9FA5  # Han signs, of which no layout has any
LINE = 40  # signs
SUCCESS = "Type Success"
BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"  # ends with the bench, however that ends
LATIN = "The quick brown fox jumps over the lazy dog, 0123456789 times. "
LATIN_KEYS = 1000
WINDOW_MS = 25_000


class TypingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to type."""

    apps: str = ""  # all by default
    signs: int = 1000  # distinct ones in each text; fewer where a field shows fewer
    tries: int = 20
    load: int = 10  # busy programs beside it
    seed: int = 0
    overrides: list[str] = []


class Typed(msgspec.Struct, frozen=True, kw_only=True):
    """All tries in one application."""

    app: str
    signs: int
    tries: int
    exact: int
    told: int  # not exact, and typing said so
    wrong: list[str]  # not exact, and typing said success: where the first difference is
    corpus: str  # empty where lines that editors correct stand there; else where the first difference is
    p50_s: float | None  # seconds that one text took
    latin_cpu_ms: float | None  # processor milliseconds of the whole desktop per Latin keystroke, before the load began
    latin_keys_s: float  # Latin keystrokes per second


class TypingResult(msgspec.Struct, frozen=True, kw_only=True):
    """Everything measured."""

    cores: int
    load: int
    load_at_start: float  # processes that ran or wanted to, mean of the last minute, before this load
    apps: list[Typed]
    met: bool


def text_of(rng: random.Random, signs: int, *, lines: bool) -> str:
    """`signs` distinct Han signs, in lines if wanted."""
    drawn = "".join(map(chr, rng.sample(range(FIRST, LAST), signs)))
    return "\n".join(drawn[at : at + LINE] for at in range(0, signs, LINE)) if lines else drawn


def difference(wanted: str, found: str) -> str:
    """Where the first difference of two texts is, and how long they are."""
    at = next((n for n, pair in enumerate(zip(wanted, found, strict=False)) if pair[0] != pair[1]), None)
    at = min(len(wanted), len(found)) if at is None else at
    return f"at {at}: {wanted[at : at + 6]!r} became {found[at : at + 6]!r}, {len(wanted)} and {len(found)} characters"


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many programs that always want the processor."""
    endless = [sys.executable, "-I", "-c", BUSY, str(os.getpid())]
    with ExitStack() as running:
        for _ in range(count):
            # A session each: Linux may share the processor out by sessions, and all of them would count as one program.
            program = running.enter_context(subprocess.Popen(endless, start_new_session=True))
            running.callback(program.kill)
        yield


async def measure(wanted: TypingOptions, said: Callable[[str], None]) -> TypingResult:
    """Type into each application in turn. Raises ConfigError, LinkDown, DesktopFault and GuestRefused."""
    names = [name.strip() for name in wanted.apps.split(",") if name.strip()] or list(FIELDS)
    for name in names:
        if name not in FIELDS:
            raise ConfigError(f"--apps {name}: no application that this types into; {hint(name, FIELDS)}")
    if wanted.signs < 1 or wanted.signs > LAST - FIRST or wanted.tries < 1 or wanted.load < 0:
        raise ConfigError(f"--signs is 1 to {LAST - FIRST}, --tries at least 1 and --load at least 0")
    sandbox, found, load = stage.sandbox_set(wanted.overrides), [], os.getloadavg()[0]
    async with stage.provider(sandbox) as made:
        for name in names:
            if shutil.which(FIELDS[name].argv[0]) is None:
                said(f"{name}: not installed here")
                continue
            booted = await stage.boot(made)
            try:
                found.append(await _typed(made, booted, name, wanted, said))
            finally:
                await booted.link.close()
                await made.destroy(booted.desktop)
    met = bool(found) and not any(one.wrong or one.corpus for one in found)
    return TypingResult(cores=os.cpu_count() or 1, load=wanted.load, load_at_start=load, apps=found, met=met)


async def _open(booted: stage.Booted, field: Field) -> None:
    link = booted.link
    for path, data in ((FILE, b""), (SHEET, b""), (PAGE_FILE, PAGE)):
        await link.call("write_file", timeout_s=stage.CALL_S, path=path, data=data)
    await link.call(
        "launch", timeout_s=stage.CALL_S, argv=[word.replace("~", booted.desktop.home) for word in field.argv]
    )
    window = {"title": field.title, "timeout_ms": WINDOW_MS, "accessible": field.accessible}
    await link.call("wait_window", timeout_s=stage.CALL_S, **window)
    await link.call("settle", timeout_s=stage.CALL_S, **REST)
    await press(link, field.ready)
    if field.dialog:
        await link.call("wait_window", timeout_s=stage.CALL_S, title=field.dialog, timeout_ms=WINDOW_MS)
        await link.call("settle", timeout_s=stage.CALL_S, **REST)


async def _typed(
    made: SandboxProvider, booted: stage.Booted, app: str, wanted: TypingOptions, said: Callable[[str], None]
) -> Typed:
    field, link = FIELDS[app], booted.link
    await _open(booted, field)
    latin = await _latin(made, booted, field)
    corpus, read = await _corpus(link, field)
    said(f"{app}: lines that editors correct {f'differ {corpus}' if corpus else 'are exact'}")
    rng, signs = random.Random(wanted.seed), min(wanted.signs, field.most)  # noqa: S311 - repeatable, nothing secret
    exact, told, wrong, took = 0, 0, [], []
    with busy(wanted.load):
        for number in range(wanted.tries):
            text = text_of(rng, signs, lines=field.lines)
            await press(link, field.clear)
            began = time.monotonic()
            answer = await _type(link, field, text)
            took.append(time.monotonic() - began)
            stands = await field.contents(link, read + number)
            if stands == text:
                exact += 1
            elif answer == SUCCESS:
                wrong.append(difference(text, stands))
            else:
                told += 1
            said(f"{app}: {exact} of {number + 1} exact{'' if stands == text else ', ' + difference(text, stands)}")
    return Typed(
        app=app, signs=signs, tries=wanted.tries, exact=exact, told=told, wrong=wrong, corpus=corpus,
        p50_s=median(took), latin_cpu_ms=latin[0], latin_keys_s=latin[1],
    )  # fmt: skip


async def _type(link: GuestLink, field: Field, text: str) -> str:
    if field.before:
        await link.call("type_text", timeout_s=stage.CALL_S, text=field.before)
        await link.call("settle", timeout_s=stage.CALL_S, **REST)
    answer = ""
    for call in typed(text + ("\n" if field.before else "")):
        answer = str(await link.call(call.method, timeout_s=stage.CALL_S, **call.args))
    await link.call("settle", timeout_s=stage.CALL_S, **REST)
    return answer


def corpus_of(field: Field) -> list[str]:
    """The lines that editors correct, in texts that `field` takes and shows."""
    if not field.lines:
        return [ONE_LINE]
    texts = [CORPUS[0]]
    for line in CORPUS[1:]:
        longer = f"{texts[-1]}\n{line}"
        texts[-1:] = [longer] if len(longer) <= field.most else [texts[-1], line]
    return texts


async def _corpus(link: GuestLink, field: Field) -> tuple[str, int]:
    """Where lines that editors correct first differ (empty: nowhere), and how many texts were read."""
    differs, texts = "", corpus_of(field)
    for number, text in enumerate(texts):
        await press(link, field.clear)
        await _type(link, field, text)
        stands = await field.contents(link, number)
        differs = differs or ("" if stands == text else difference(text, stands))
    return differs, len(texts)


async def _latin(made: SandboxProvider, booted: stage.Booted, field: Field) -> tuple[float | None, float]:
    """Processor milliseconds of a Latin keystroke, and keystrokes per second."""
    link, text = booted.link, (LATIN * LATIN_KEYS)[:LATIN_KEYS]
    await press(link, field.clear)
    cpu_s, began = (await made.probe(booted.desktop)).cpu_s, time.monotonic()
    await link.call("type_text", timeout_s=stage.CALL_S, text=text)
    took = time.monotonic() - began
    await link.call("settle", timeout_s=stage.CALL_S, **REST)
    used = (await made.probe(booted.desktop)).cpu_s - cpu_s
    await press(link, field.unused)
    return (1e3 * used / LATIN_KEYS if used > 0 else None), LATIN_KEYS / took


def run(wanted: TypingOptions, *, as_json: bool) -> int:
    """Measure and print; 1 when a text is wrong and typing said success."""

    def said(text: str) -> None:
        output.line(f"  {text}", to=sys.stderr)

    try:
        found = asyncio.run(measure(wanted, said))
    except (DesktopFault, LinkDown, GuestRefused) as error:
        output.line(f"computerrl bench typing: a desktop was lost while it was measured: {error}", to=sys.stderr)
        return 1
    if as_json:
        output.document(found)
        return 0 if found.met else 1
    output.line(
        f"{found.cores} cores, load {found.load_at_start:.2f} at the start, {found.load} busy programs beside it\n"
    )
    head = ("APP", "CORPUS", "SIGNS", "EXACT", "TOLD", "WRONG", "P50 S", "LATIN CPU MS", "LATIN KEYS/S")
    output.table(head, [_row(one) for one in found.apps])
    for one in found.apps:
        for text in [*filter(None, [one.corpus]), *one.wrong]:
            output.line(f"{one.app}: {text}")
    return 0 if found.met else 1


def _row(one: Typed) -> tuple[object, ...]:
    cpu = "-" if one.latin_cpu_ms is None else f"{one.latin_cpu_ms:.2f}"
    p50 = "-" if one.p50_s is None else f"{one.p50_s:.1f}"
    exact = f"{one.exact} of {one.tries}"
    corpus = "differs" if one.corpus else "exact"
    return one.app, corpus, one.signs, exact, one.told, len(one.wrong), p50, cpu, f"{one.latin_keys_s:.0f}"
