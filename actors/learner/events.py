"""What the learner logs."""

from __future__ import annotations

from runtime.logs.events import declare

# t0 and t1 are seconds of the run's clock: the span in which the rank computed, for seeing what overlaps it.
LEARNER_STEP = declare(
    "learner_step", "info",
    version=str, phase=str, kind=str, lease=int, t0=float, t1=float, micro_batches=int, samples=int,
    loss=float, entropy=float, grad_norm=float, tokens=float, lr=float, figures=dict[str, float],
)  # fmt: skip
STEP_SKIPPED = declare("step_skipped", "warning", version=str, cause=str, in_a_row=int)
GROUPS_WITHOUT_SIGNAL = declare("groups_without_signal", "warning", lease=int, groups=list[str])
LEASE_LOST = declare("lease_lost", "warning", lease=int, version=str, cause=str)
WEIGHTS_ANNOUNCED = declare(
    "weights_announced",
    "info",
    version=str,
    digest=str,
    location=str,
    export_s=float,
    announce_s=float,
    samplers=list[str],
    missed=list[str],
)
# `ready_s`: how long the engine that was ready first has waited for the others. `late`: who did not come in time.
GROUP_FORMED = declare(
    "group_formed", "info", version=str, group=str, samplers=list[str], ranks=int, ready_s=float, late=list[str]
)
GROUP_NOT_FORMED = declare("group_not_formed", "warning", version=str, samplers=list[str], cause=str)
WEIGHTS_SENT = declare(
    "weights_sent", "info", version=str, group=str, ranks=int, size_bytes=int, join_s=float, send_s=float
)
WEIGHTS_NOT_SENT = declare("weights_not_sent", "warning", version=str, group=str, cause=str, after_s=float)
CHECKPOINT_SAVED = declare("checkpoint_saved", "info", version=str, location=str, save_s=float, cause=str)
LEARNER_STARTED = declare("learner_started", "info", version=str, parameters=int, location=str)
LEARNER_RESUMED = declare("learner_resumed", "warning", version=str, parent=str, location=str, cause=str)
# A rank's process ends itself, because the ranks may have come apart; its supervisor starts another.
RANK_ENDS = declare("rank_ends", "warning", cause=str)
RANK_LOST = declare("rank_lost", "warning", version=str, cause=str)
# What an actor on another machine fetches or makes did not get through; it is tried again until it does.
TRANSFER_FAILED = declare("transfer_failed", "warning", name=str, request=str, cause=str)
LEARNER_FINISHED = declare("learner_finished", "info", version=str, steps=int, busy_s=float)
