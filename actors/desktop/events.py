"""The events that desktops and their seats log."""

from __future__ import annotations

from runtime.logs.events import declare

# Desktops have these limits from the next boot on, by what their machine has room for.
LIMITS_FITTED = declare("limits_fitted", "info", memory_mib=int, processes=int, open_files=int, terminals=int)
# Even the least limits don't fit beside what has come since: the limits stay as they are.
LIMITS_KEPT = declare("limits_kept", "warning", cause=str)
DESKTOP_BOOTED = declare("desktop_booted", "info", desktop=str, boot_s=float, warnings=list[str])
DESKTOP_BOOT_FAILED = declare("desktop_boot_failed", "warning", cause=str, detail=str, culprit=str, again_s=float)
DESKTOP_SPARE_DIED = declare("desktop_spare_died", "warning", desktop=str, detail=str)
DESKTOP_NOT_REMOVED = declare("desktop_not_removed", "error", desktop=str, detail=str)
# A desktop is thrown away: its holder ("" for a spare), and what its guest has used, 0 where that is unknown.
DESKTOP_GONE = declare("desktop_gone", "info", desktop=str, holder=str, cpu_s=float)
LEASE_EXPIRED = declare("lease_expired", "warning", desktop=str, lease=int, holder=str, state=str, held_s=float)
HOST_QUARANTINED = declare("host_rests", "warning", cause=str, detail=str, faults=int)
HOST_LET_BACK = declare("host_let_back", "info", desktop=str, rested_s=float)
IMAGE_QUARANTINED = declare("image_rests", "warning", image=str, cause=str, detail=str, faults=int)
IMAGE_LET_BACK = declare("image_let_back", "info", image=str, desktop=str, rested_s=float)

# t0 and t1 are seconds of the run's clock: the span of the episode, for seeing what overlaps it.
EPISODE_ENDED = declare(
    "episode_ended", "info",
    lane=str, task=str, token=int, success=bool, reason=str, detail=str, steps=int, well_formed=int, t0=float, t1=float,
)  # fmt: skip
# A seat's seconds by stage between t0 and t1; the spans of one life lie end to end and begin with `idle`.
# `waited_for` is what that idle time was spent on: "work" of the ledger, or the "ledger" itself, which did not answer.
SEAT_TIME = declare("seat_time", "info", t0=float, t1=float, waited_for=str, seconds=dict[str, float])
EPISODE_FAULTED = declare("episode_faulted", "warning", task=str, cause=str, detail=str, token=int)
LEDGER_SILENT = declare("ledger_silent", "warning", what=str, cause=str)
SEAT_QUARANTINED = declare("seat_rests", "warning", cause=str, faults=int)
SEAT_LET_BACK = declare("seat_let_back", "info", faults=int)
