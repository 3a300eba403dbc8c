"""What the entry point logs."""

from __future__ import annotations

from runtime.logs.events import declare

# Processor seconds of the last `span_s`: by part of the run (guests apart: `desktop_gone`), and of the whole machine.
# `elsewhere` has those of parts on other machines.
# `namespace` is the entry point's, as names of desktops tell their owners'.
CPU_USED = declare(
    "cpu_used", "info",
    span_s=float, cores=int, seconds=dict[str, float], machine_s=float, elsewhere=dict[str, float], namespace=str,
)  # fmt: skip
# A live run has become what another deploy file says; `lines` as `computerrl apply` prints them.
CHANGED = declare("changed", "info", lines=list[str])
# A seat that is to leave did not end its episode; the ledger takes the work back.
DRAIN_FAILED = declare("drain_failed", "warning", seat=str, cause=str)
# TensorBoard's file could not be written any more; the run goes on without it.
SCALARS_STOPPED = declare("scalars_stopped", "warning", cause=str)
# A tracker takes nothing more; the run goes on without it.
TRACKER_STOPPED = declare("tracker_stopped", "warning", tracker=str, cause=str)
