"""URLs that carry their content: how a task holds the files of its set-up.

Invariant: pure. Each URL of another kind is refused, since desktops have no network.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from urllib.parse import unquote_to_bytes


def data_url(data: bytes, mime: str = "text/plain") -> str:
    """A URL that carries its content."""
    return f"data:{mime};base64,{b64encode(data).decode('ascii')}"


def data_of(url: str) -> bytes:
    """The content of a `data:` URL. Raises ValueError for any other URL."""
    head, comma, body = url.partition(",")
    if not head.startswith("data:") or not comma:
        raise ValueError(f"{url[:60]!r} does not carry its content, and desktops have no network")
    return b64decode(body, validate=True) if head.endswith(";base64") else unquote_to_bytes(body)
