"""What the supervisor logs. The phase changes themselves are logged by the ledger that holds them."""

from __future__ import annotations

from runtime.logs.events import declare

PHASE_DECIDED = declare("phase_decided", "info", phase=str, cause=str, evidence=dict[str, float])
ROUND_WEIGHTS_KEPT = declare("round_weights_kept", "info", version=str, round=str, samplers=list[str])
ROUND_WEIGHTS_RELEASED = declare("round_weights_released", "info", version=str)
SUPERVISOR_WAITS = declare("supervisor_waits", "warning", cause=str)
