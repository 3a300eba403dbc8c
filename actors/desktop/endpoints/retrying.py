"""When a server that failed is asked again, and how long it asked to be left alone. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

from actors.desktop.endpoints.config import EndpointConfig
from runtime.supervision import Backoff

LIMITED = 429
# The server may answer later; 520 to 529 are what proxies and crowded services say of it.
AGAIN = frozenset({408, 409, 425, LIMITED, 500, 502, 503, 504, *range(520, 530)})


def backoff_s(endpoint: EndpointConfig, tried: int, draw: float) -> float:
    """Seconds to wait after `tried` failures: doubling up to the longest, times 0.5 to 1 by `draw` (0 to 1)."""
    backoff = Backoff(first_s=endpoint.first_backoff_s, longest_s=endpoint.longest_backoff_s)
    return backoff.delay_s(tried) * (0.5 + 0.5 * draw)


def retry_after_s(headers: Mapping[str, str], now: float) -> float:
    """Seconds that a server asks to wait by `Retry-After`, a number or a date (RFC 9110, 10.2.3); 0 where it does not.

    `headers` are found in any case of letters. A date counts from the server's own `Date`, or from `now` in seconds
    since 1970. Some services give milliseconds in `retry-after-ms`.
    """
    for name, unit_s in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        seconds = _number(headers.get(name, "")) * unit_s
        if seconds > 0:
            return seconds
    until = _date_s(headers.get("retry-after", ""))
    return 0.0 if until is None else max(0.0, until - (_date_s(headers.get("date", "")) or now))


def _number(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        return 0.0
    return found if math.isfinite(found) else 0.0


def _date_s(text: str) -> float | None:
    try:
        found = parsedate_to_datetime(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, OSError):
        return None
