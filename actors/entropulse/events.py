"""What the supervisor logs. The phase changes themselves are logged by the ledger that holds them."""

from __future__ import annotations

from runtime.events import declare

PHASE_DECIDED = declare("phase_decided", "info", phase=str, cause=str, evidence=dict[str, float])
WEIGHTS_PINNED = declare("weights_pinned", "info", version=str, round=str, samplers=list[str])
WEIGHTS_UNPINNED = declare("weights_unpinned", "info", version=str)
SUPERVISOR_WAITS = declare("supervisor_waits", "warning", cause=str)
