"""What an answer comes to, as plain values."""

from __future__ import annotations

from typing import Any

import msgspec

from apis.actions.grammar import RefusedAnswer, parse
from apis.actions.spaces import ActionSpace
from apis.applications import APP_NAMES


def verdict(answer: str, app: str, space: ActionSpace = "both") -> dict[str, Any]:
    """What `answer`, given while `app` is active, comes to. Names of elements and windows are taken as they are."""
    assert app in APP_NAMES
    result = parse(answer, app, space=space)
    if isinstance(result, RefusedAnswer):
        return {"verdict": "refused", "action": None, "reason": result.reason}
    return {"verdict": "action", "action": msgspec.json.decode(msgspec.json.encode(result)), "reason": None}
