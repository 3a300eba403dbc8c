"""What a sampler logs."""

from __future__ import annotations

from runtime.logs.events import declare

SAMPLER_READY = declare("sampler_ready", "info", engine=str, version=str, pid=int, start_s=float, restarts=int)
# `off_by`: mean difference of a canary's log-probabilities from the learner's, `p99` and `largest` of single ones; none
# where there was no canary.
WEIGHTS_LOADED = declare(
    "weights_loaded", "info",
    version=str, load_s=float, skipped=int, location=str, way=str,
    off_by=float | None, p99=float | None, largest=float | None,
)  # fmt: skip
# There was no group in time, or the engine did not get the weights from it: they are loaded from disk.
WEIGHTS_NOT_RECEIVED = declare("weights_not_received", "info", version=str, cause=str)
WEIGHTS_SUSPECT = declare(
    "weights_suspect", "error",
    version=str, off_by=float | None, p99=float | None, largest=float | None, tolerance=float, when=str,
)  # fmt: skip
WEIGHTS_REFUSED = declare("weights_refused", "error", version=str, location=str, cause=str, served=str)
# The load broke, and the engine may well be alive: it is tried again.
WEIGHTS_NOT_LOADED = declare("weights_not_loaded", "warning", version=str, attempt=int, cause=str)
SERVING_NOT_REPORTED = declare("serving_not_reported", "warning", version=str, cause=str)
ENGINE_TURN = declare("engine_turn", "info", card=str)  # what the engine has of a card that the learner has in turn
ENGINE_STARTING = declare("engine_starting", "info", waited_s=float, last_output=str)
ENGINE_SILENT = declare("engine_silent", "warning", rid=str, waited_s=float, pid=int)
ENGINE_DIED = declare("engine_died", "warning", cause=str, exit_code=int | None, last_output=list)
ENGINE_NOT_BACK = declare("engine_not_back", "warning", attempt=int, cause=str)
ENGINE_RESTARTED = declare("engine_restarted", "info", version=str, pid=int, down_s=float, restarts=int)
GENERATE_RETRIED = declare("generate_retried", "warning", rid=str, attempt=int, cause=str)
# t0 and t1 are seconds of the run's clock.
GENERATE = declare(
    "generate", "debug",
    rid=str, t0=float, t1=float, prompt_tokens=int, tokens=int, cached_tokens=int, versions=list[str], finish=str,
    attempts=int,
)  # fmt: skip
REQUEST_MOVED = declare("request_moved", "warning", rid=str, sampler=str, attempt=int, cause=str)
# Of the last `span_s`: first requests of an episode, later ones that went to the same engine and to another, and the
# tokens that each sampler drew.
ROUTED = declare(
    "routed", "info",
    span_s=float, new=int, hits=int, moved=int, hit_rate=float | None, retries=int, outstanding=dict[str, int],
    drawn=dict[str, int],
)  # fmt: skip
