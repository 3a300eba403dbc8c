"""The events that the ledger logs, each after the transaction that made it true is durable."""

from __future__ import annotations

from actors.replay.messages import StepEvidence
from runtime.logs.events import declare, declare_struct

LEDGER_OPENED = declare("ledger_opened", "info", fresh=bool, phase=str, released=int, groups_returned=int)
GROUP_OPENED = declare("group_opened", "info", group=str, task=str, phase=str)
GROUP_READY = declare("group_ready", "info", group=str, task=str, episodes=int, successes=int)
GROUP_ENDED = declare("group_ended", "info", group=str, task=str, ending=str)
GROUPS_RETURNED = declare("groups_returned", "warning", groups=int, cause=str)
EPISODE_COMMITTED = declare(
    "episode_committed",
    "info",
    token=int,
    seat=str,
    lane=str,
    task=str,
    success=bool,
    reason=str,
    steps=int,
    wall_s=float,
)
EPISODE_RELEASED = declare(
    "episode_released", "warning", token=int, seat=str, lane=str, task=str, cause=str, detail=str, culprit=str
)
EPISODE_DEFERRED = declare("episode_put_off", "info", token=int, seat=str, task=str, detail=str)
BATCH_TAKEN = declare("batch_taken", "info", lease=int, phase=str, groups=int, samples=int, staleness=dict[str, int])
# Answers of more tokens than `most` (`sampling.max_new_tokens`) are left out of cloning: none so long is ever drawn.
ANSWERS_TOO_LONG = declare("answers_too_long", "warning", left_out=int, learned=int, longest=int, most=int)
# Segment files are missing, torn or changed: these groups ended as lost, these samples are not learned from.
PAYLOADS_UNREADABLE = declare(
    "payloads_unreadable", "error", lease=int, phase=str, groups=int, samples=int, segments=list[str], cause=str
)
# `success` is None but in RL: cloning and pulses play no training episodes.
STEP_TRAINED = declare("step_trained", "info", lease=int, phase=str, version=str, success=float | None)
RL_EVIDENCE = declare_struct("rl_evidence", "info", StepEvidence)  # after every optimizer step of RL
PHASE_CHANGED = declare("phase_changed", "info", phase=str, index=int, before=str, cause=str, evidence=dict[str, float])
EVAL_ROUND_OPENED = declare(
    "eval_round_opened", "info", round=str, version=str, tasks=int, temperature=float, episodes=int
)
EVAL_ROUND_CLOSED = declare(
    "eval_round_closed", "info",
    round=str, version=str, temperature=float, tasks=int, played=int, successes=int, feasible=int, faults=int,
    task_set=str, episodes=int, success=float, low=float, high=float, families=dict[str, float],
    instances=dict[str, int], pass_at=dict[str, float],
)  # fmt: skip
LINEAGE_STARTED = declare("lineage_started", "warning", version=str, parent=str, returned=int, orphaned=int)
PAYLOADS_COLLECTED = declare("payloads_collected", "debug", freed_bytes=int, not_freed=int, segments_deleted=int)
TASK_QUARANTINED = declare(
    "task_rests", "warning", task=str, cause=str, detail=str, faults=int, failed_probes=int, probe_s=float
)
TASK_LET_BACK = declare("task_let_back", "info", task=str, failed_probes=int)
SAMPLER_SILENT = declare("sampler_silent", "warning", sampler=str, version=str, silent_s=float)
# `tasks` counts by `family/stratum`; first, mixed and policy hold the tries and wins of the attempts of each kind.
DEMO_STRATA = declare(
    "demo_strata", "info",
    tasks=dict[str, int], first=dict[str, int], mixed=dict[str, int], policy=dict[str, int],
)  # fmt: skip
# Of a run's recording; the others are taken in.
DEMOS_UNREADABLE = declare("demos_unreadable", "error", path=str, demos=int, cause=str)
DEMOS_TAKEN_IN = declare("demos_taken_in", "info", path=str, demos=int)
