"""What the entry point logs."""

from __future__ import annotations

from runtime.logs.events import declare

# Processor seconds of the last `span_s`: by part of the run (guests apart: `desktop_gone`), and of the whole machine.
CPU_USED = declare("cpu_used", "info", span_s=float, cores=int, seconds=dict[str, float], machine_s=float)
# TensorBoard's file could not be written any more; the run goes on without it.
SCALARS_STOPPED = declare("scalars_stopped", "warning", cause=str)
