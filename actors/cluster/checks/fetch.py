"""`tasks fetch`: task files and their fixtures, from folders or over HTTP, into the store.

What was fetched once is locked by its sha256. An interrupted fetch goes on with what is missing. A task file is a
stranger's: what it names is asked for over HTTP alone, and taken only where the answer says that it is whole.
"""

from __future__ import annotations

import argparse
import os
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

import httpx2
import msgspec

from actors.cluster import output
from actors.cluster.config import tasksets
from apis.tasks import osworld
from apis.tasks import registry as tasks
from apis.tasksets import store
from apis.tasksets.getters import WantedFixture, names_a_file, parts_of, wanted_by
from runtime import disk
from runtime.errors import ConfigError


class PublishedSet(msgspec.Struct, frozen=True):
    """A set that people publish: the folder of a clone that has its task files, and the domains that these are of."""

    folder: str
    domains: tuple[str, ...]

    @property
    def places(self) -> tuple[str, ...]:
        """Where below a folder that is named its domains may lie."""
        return self.folder, self.folder.rpartition("/")[2], ""


KNOWN = {
    "osworld": PublishedSet("evaluation_examples/examples", (
        "chrome", "gimp", "libreoffice_calc", "libreoffice_impress", "libreoffice_writer", "multi_apps", "os",
        "thunderbird", "vlc", "vs_code",
    )),
    "officeworld": PublishedSet("evaluation_examples/examples_office", ("ow-docx", "ow-pptx", "ow-xlsx")),
}  # fmt: skip
RESOLVED = re.compile(r"/resolve/([^/]+)/(.*)$")  # a dataset's file: its revision, its path
POINTER = b"version https://git-lfs"  # what a clone without large files has in their place
TRIES, TIMEOUT_S, WHOLE_S = 3, 60.0, 3600.0  # seconds between two pieces of an answer, and for all of it
PLAIN = {"Accept-Encoding": "identity"}
MISSING_SHOWN = 10


def places_in(folder: Path, wanted: WantedFixture) -> Iterator[Path]:
    """Where `folder` may hold it: as the dataset does, or as the published harness's cache does."""
    resolved = RESOLVED.search(parts_of(wanted.url).path)
    if resolved:
        yield folder / unquote(resolved.group(2))
    cached = f"{uuid.uuid5(uuid.NAMESPACE_URL, wanted.url)}_{wanted.name}"
    for above in (folder / "cache", folder):
        yield above / wanted.task / cached
        if wanted.name:
            yield above / wanted.task / wanted.name


def found_in(folder: Path, wanted: WantedFixture) -> bytes | None:
    """Its content from `folder`, or None; a pointer to a large file that the clone lacks is no content."""
    root = Path(os.path.realpath(folder))
    for place in places_in(folder, wanted):
        real = Path(os.path.realpath(place))  # of a circle of links, too
        if real.is_relative_to(root) and real.is_file():
            data = disk.read_bytes(real, store.MOST_FIXTURE)
            if not data.startswith(POINTER):
                return data
    return None


def address(url: str, base: str, revision: str) -> str:
    """`url` on the mirror `base` ("" is its own host) at `revision` ("" is the one that it names)."""
    parts = urlsplit(url)
    path = parts.path
    if revision and (resolved := RESOLVED.search(path)):
        path = path[: resolved.start()] + f"/resolve/{revision}/{resolved.group(2)}"
    if base:
        mirror = urlsplit(base.rstrip("/"))
        parts = parts._replace(scheme=mirror.scheme, netloc=mirror.netloc)
        path = mirror.path + path
    return urlunsplit(parts._replace(path=path))


def downloaded(at: str) -> bytes | None:
    """The content of the address `at`; None where it can't be had."""
    for _ in range(TRIES):
        try:
            with httpx2.stream("GET", at, timeout=TIMEOUT_S, follow_redirects=True, headers=PLAIN) as answer:
                if answer.status_code in (401, 403, 404):
                    return None
                # Without a length of either kind, an answer that broke off looks like a whole one.
                sure = not {"content-length", "transfer-encoding"}.isdisjoint(answer.headers)
                if answer.status_code == 200 and sure and "content-encoding" not in answer.headers:
                    return _whole(answer)
        except (httpx2.InvalidURL, ValueError):
            return None
        except (httpx2.HTTPError, OSError):
            continue
    return None


def _whole(answer: httpx2.Response) -> bytes | None:
    """The bytes of an answer; None where they are too many. Raises httpx2.HTTPError, TimeoutError."""
    data, end = bytearray(), time.monotonic() + WHOLE_S
    for piece in answer.iter_raw():
        data += piece
        if len(data) > store.MOST_FIXTURE:
            return None
        if time.monotonic() > end:
            raise TimeoutError
    return bytes(data)


def task_files(name: str, folders: Sequence[Path]) -> list[Path]:
    """The task files of the published set `name` in `folders`: of a clone, or of a folder of domains.

    Raises ConfigError where no folder has files of all its domains.
    """
    set_, near = KNOWN[name], ""
    for folder in folders:
        for below in set_.places:
            files = [file for file in sorted((folder / below).glob("*/*.json")) if _is_task(file)]
            found = {file.parent.name for file in files}
            if found.issuperset(set_.domains):
                return [file for file in files if file.parent.name in set_.domains]
            lacking = ", ".join(domain for domain in set_.domains if domain not in found)
            near = near or (f"{folder / below} has no tasks of {lacking}" if found else "")
    near = near or next(filter(None, map(_other_set, folders)), "")
    asked = "name a folder with its task files by --from (a clone of the benchmark, or a folder of DOMAIN/ID.json)"
    raise ConfigError(f"task set {name}: {near}; {asked}" if near else f"task set {name} is not here yet: {asked}")


def _other_set(folder: Path) -> str:
    """Which published set `folder` holds, as the start of an error; "" where it holds none."""
    for name, known in KNOWN.items():
        for below in known.places:
            if all((folder / below / domain).is_dir() for domain in known.domains):
                return f"{folder / below} has the tasks of {name}"
    return ""


def _is_task(file: Path) -> bool:
    try:
        osworld.load(disk.read_bytes(file, osworld.FILE_MAX))
    except (OSError, ConfigError):
        return False
    return True


def fetch(args: argparse.Namespace) -> int:
    """Fetch; 1 when a fixture could not be had."""
    revision = args.revision or ""
    urls = [source for source in args.from_ if "://" in source]
    folders = [Path(source) for source in args.from_ if "://" not in source]
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"--from {folder}: there is no such folder")
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(
                f"--from {url}: an address begins with http:// or https://; a folder is named by its path"
            )
    store.clear()
    if args.name in KNOWN and not (store.is_set(args.name) and not folders):
        name = store.adopt(args.name, task_files(args.name, folders), pinned=True)
    else:
        name = tasksets.set_of(args.name)
    ids, by_url = store.ids(name), attrgetter("url")
    wanted = [one for task_id in ids for one in wanted_by(tasks.task(task_id))]
    left = [one for one in wanted if not store.digest_of(one)]
    output.line(f"task set {name}: {len(ids)} tasks, {len(wanted)} fixtures, {len(wanted) - len(left)} of them here")
    base = urls[0] if urls else os.environ.get("HF_ENDPOINT", "")
    missing: list[WantedFixture] = []
    size, shown = 0, output.Progress()
    for done, (url, several) in enumerate(groupby(sorted(left, key=by_url), key=by_url), 1):
        rest = []
        for one in several:
            data = next((found for folder in folders if (found := found_in(folder, one)) is not None), None)
            if data is None:
                rest.append(one)
            else:
                size += store.keep(one, data, revision).size
        if rest and (urls or not folders) and names_a_file(url):
            data = downloaded(address(url, base, revision))
            while data is not None and rest:
                size += store.keep(rest.pop(), data, revision).size
        missing += rest
        shown.line(f"{done} URLs, {len(left)} fixtures, {size / 1e6:.1f} MB, {len(missing)} missing")
    for one in missing[:MISSING_SHOWN]:
        output.line(output.clean(f"missing: {one}, task {one.task}"))
    if len(missing) > MISSING_SHOWN:
        output.line(f"and {len(missing) - MISSING_SHOWN} more")
    if missing and not names_a_file(missing[0].url):
        output.line(f"{missing[0].url} names no file: name a folder that has them by --from, as cache/TASK/NAME")
    output.line(f"{len(left) - len(missing)} fetched, {size / 1e6:.1f} MB; {len(missing)} missing")
    return int(bool(missing))
