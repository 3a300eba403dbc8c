"""A verdict on one answer without a desktop, for the command line and for tools.

Invariant: pure; the verdict has exactly the keys `verdict`, `action` and `reason`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from apis.actions.grammar import Refusal, parse
from apis.actions.spaces import ActionSpace
from apis.applications import APP_NAMES


def verdict(answer: str, app: str, space: ActionSpace = "both") -> dict[str, Any]:
    """What `answer`, given while `app` is active by an agent with the actions of `space`, comes to.

    `{"verdict": "action"|"refused", "action": {...}|None, "reason": str|None}`.
    Element and window names are taken as they stand: there is no observation to look them up in.
    Raises KeyError when `app` is no application of `APP_NAMES`.
    """
    if app not in APP_NAMES:
        raise KeyError(app)
    result = parse(answer, app, space=space)
    if isinstance(result, Refusal):
        return {"verdict": "refused", "action": None, "reason": result.reason}
    return {"verdict": "action", "action": msgspec.json.decode(msgspec.json.encode(result)), "reason": None}
