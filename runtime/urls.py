"""Addresses of HTTP servers that a person names.

Invariant: an accepted address holds no user name and no password. Logs, settings and errors repeat addresses.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from runtime.errors import ConfigError

_CREDENTIALS = re.compile(r"(?<=://)[^/?#\s]*@")


def refuse_bad_url(url: str, at: str, instead: str) -> None:
    """Raise ConfigError unless `url` is `http(s)://HOST[:PORT][/PATH]` without credentials.

    `at` names the key or flag in the error; `instead` says where a secret belongs.
    """
    try:
        parts = urlsplit(url)
        host, user, _ = parts.hostname, parts.username, parts.port  # the port is checked when it is read
    except ValueError as error:
        raise ConfigError(f"{at} is {masked(url)!r}: {error}") from None
    if user is not None or _CREDENTIALS.search(url):
        raise ConfigError(f"{at} is {masked(url)!r}: it holds a user name or password, which logs repeat; {instead}")
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError(f"{at} is {url!r}: a server is http://HOST:PORT or https://HOST:PORT")
    if parts.query or parts.fragment:
        raise ConfigError(f"{at} is {url!r}: leave out what follows {'?' if parts.query else '#'}; {instead}")


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach the address or name `host`."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def masked(text: str) -> str:
    """`text` with the credentials of every address in it replaced by `***`."""
    return _CREDENTIALS.sub("***@", text)
