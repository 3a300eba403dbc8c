"""Asking VLC, over HTTP on this desktop's loopback.

Invariant: nothing is read past `MOST_BYTES`, and every question ends within its caller's seconds.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from guest.paths import wrong
from guest.vlc import start as vlc_start

MOST_BYTES = 2 << 20
CALL_S = 8.0  # less than the agent waits
CONNECT_S = 4.0  # a VLC that has just been started takes a while until it listens
LOOK_S = 0.01


def _running() -> bool:
    """Whether there is a VLC, however it was started. A VLC that has ended may not have been waited for yet."""
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and re.match(rb"\d+ \(vlc\) [^ZX]", Path(f"/proc/{entry}/stat").read_bytes()):
                return True
        except OSError:  # it ended meanwhile
            continue
    return False


def ask(wait_s: float = CALL_S, **query: str) -> dict[str, Any]:
    """What VLC's page (http/agent.json) answers to `query`. Raises Refused."""
    until = time.monotonic() + min(wait_s, CONNECT_S)
    port, password = vlc_start.access()
    login = base64.b64encode(f":{password}".encode()).decode()
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=wait_s)
        try:
            connection.request("GET", f"/agent.json?{urlencode(query)}", headers={"Authorization": f"Basic {login}"})
            answer = connection.getresponse()
            body = answer.read(MOST_BYTES + 1)
            break
        except ConnectionError as error:
            if not _running():
                raise wrong("VLC is not running: open it first") from error
            if time.monotonic() >= until:
                raise wrong("VLC does not listen: close it and open it with Agent.open_app('vlc')") from error
            time.sleep(LOOK_S)
        except TimeoutError as error:
            raise wrong(f"VLC did not answer within {wait_s:g} s") from error
        finally:
            connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise wrong("VLC listens with other settings: close it and open it with Agent.open_app('vlc')")
    if len(body) > MOST_BYTES:
        raise wrong("VLC's answer is too long")
    try:
        found: dict[str, Any] = json.loads(body.decode("utf-8", "replace"), strict=False)
    except ValueError as error:
        raise wrong("VLC's answer can't be read") from error
    return found


def ask_until(true: Callable[[dict[str, Any]], bool], wait_s: float, **query: str) -> dict[str, Any]:
    """The first answer that is as wanted, or the last one within `wait_s`: VLC acts on orders a little later."""
    until = time.monotonic() + wait_s
    while True:
        found = ask(**query)
        if true(found) or time.monotonic() >= until:
            return found
        time.sleep(LOOK_S)
