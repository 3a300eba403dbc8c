"""The runtime's own events, written to the log of each host.

Invariant: every event is emitted by the runtime and by nothing else.
"""

from __future__ import annotations

from runtime.logs.events import declare

ACTOR_STARTED = declare("actor_started", "info", name=str, factory=str, start_s=float, restarts=int)
ACTOR_STOPPED = declare("actor_stopped", "info", name=str)
ACTOR_FAILED = declare("actor_failed", "error", name=str, where=str, error=str, traceback=list)
ACTOR_RESTARTS = declare("actor_restarts", "warning", name=str, delay_s=float, restarts=int)
STOP_FAILED = declare("stop_failed", "warning", name=str, error=str, traceback=list)
TASK_OUTLIVES = declare("task_outlives", "error", name=str, tasks=list)
TELL_FAILED = declare("tell_failed", "warning", name=str, message=str, sender=str, error=str)
DEAD_LETTER = declare("dead_letter", "debug", sender=str, to=str, type=str)
STALL = declare("stall", "warning", who=str, what=str, whom=str, since=str, waited_s=float, cause=str)
MAILBOX_FULL = declare("mailbox_full", "warning", name=str, sender=str, message=str, inside=int, waited_s=float)
DISK_SLOW = declare("disk_slow", "warning", file=str, what=str, waited_s=float)
# Nothing that must be written goes on until `disk_accepts`; `cause` says what to do.
DISK_REFUSES = declare("disk_refuses", "error", folder=str, cause=str)
DISK_ACCEPTS = declare("disk_accepts", "info", folder=str, after_s=float)
DISK_ANSWERS = declare("disk_answers", "info", file=str, what=str, took_s=float)
# What another process asked of the run was not carried out, by a defect or by this machine.
COMMAND_FAILED = declare("command_failed", "error", name=str, error=str, traceback=list)
HOST_LAGS = declare("host_lags", "warning", lag_s=float)
# `machine` is "" for the one that the run was started on.
# `elsewhere`: on another machine than the main host's.
HOST_STARTED = declare(
    "host_started", "info", name=str, machine=str, elsewhere=bool, pid=int, start_s=float, restarts=int
)
# `offset_s` is the run's clock less the host's own.
HOST_BEATS = declare("host_beats", "debug", name=str, cpu_s=float, machine_cpu_s=float, lag_s=float, offset_s=float)
HOST_LOST = declare("host_lost", "error", name=str, machine=str, pid=int, exit_code=int | None, cause=str, actors=list)
HOST_WAITS = declare("host_waits", "warning", waits=str)
PLACER_READY = declare("placer_ready", "info", address=str, door=str)
PLACER_LOST = declare("placer_lost", "error", cause=str, delay_s=float)
HOST_RESTARTS = declare("host_restarts", "warning", name=str, delay_s=float, restarts=int)
HOST_OUTPUT = declare("host_output", "warning", name=str, line=str)
HOST_STOPPING = declare("host_stopping", "info", name=str, asked=bool)
SHUTDOWN_FAILED = declare("shutdown_failed", "error", name=str, error=str, traceback=list)
SYSTEM_FAILED = declare("system_failed", "error", name=str, reason=str)
