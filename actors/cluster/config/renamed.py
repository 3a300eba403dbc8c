"""What keys of deploy files were called before. Pure.

Invariant: one table says it all. A file or a flag with an old name is refused by the new one; what a run folder has
stored under old names is read as if it had been written under the new ones.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

# Old key -> new key, or both of the keys that took its place. A key that stood in for others comes before them.
KEYS: dict[str, str] = {
    "run.base": "model.path",
    "tasks.max_steps": "tasks.max_turns",
    "demos.attempts": "demos.attempts_per_task",
    "demos.resamples": "demos.resample_attempts",
    "demos.pool": "demos.demonstrators",
    "demos.demonstrators[].form": "demos.demonstrators[].format",
    "desktops.seats": "desktops.count",
    "desktops.hosts": "desktops.processes",
    "desktops.spares": "desktops.warm_pool",
    "desktops.provider.processes": "desktops.provider.max_processes",
    "desktops.provider.machines[].seats": "desktops.provider.machines[].desktops",
    "desktops.form": "prompt.format",
    "desktops.actions": "prompt.action_space",
    "samplers.engine.kind": "samplers.engine.type",
    "samplers.max_running": "samplers.max_running_requests",
    "samplers.max_waiting": "samplers.max_queued_requests",
    "samplers.update": "weight_sync.in_flight",
    "samplers.publish": "weight_sync.transport",
    "samplers.publish_unit": "weight_sync.unit",
    "samplers.publish_address": "weight_sync.address",
    "samplers.publish_join_s": "weight_sync.join_s",
    "replay.temperature": "sampling.temperature",
    "replay.max_new_tokens": "sampling.max_new_tokens",
    "replay.group_min": "replay.min_group_size",
    "replay.samples_per_step": "replay.sft_batch_size",
    "replay.reservation_s": "replay.lease_s",
    "learner.bc_lr": "learner.sft.lr",
    "learner.pulse_lr": "learner.sft.pulse_lr",
    "learner.rl_lr": "learner.rl.lr",
    "learner.warmup_steps": "learner.sft.warmup_steps learner.rl.warmup_steps",
    "learner.rl_warmup_steps": "learner.rl.warmup_steps",
    "learner.lr_schedule": "learner.sft.lr_schedule learner.rl.lr_schedule",
    "learner.sft_lr_schedule": "learner.sft.lr_schedule",
    "learner.rl_cycle": "learner.rl.lr_cycle_steps",
    "learner.threads": "learner.rl.threads",
    "learner.sft_threads": "learner.sft.threads",
    "learner.advantage": "learner.rl.advantage",
    "learner.advantage_std": "learner.rl.advantage_std",
    "learner.negative_scale": "learner.rl.negative_scale",
    "learner.policy": "learner.rl.importance_ratio",
    "learner.epochs": "learner.rl.epochs",
    "learner.clip_low": "learner.rl.clip_ratio_low",
    "learner.clip_high": "learner.rl.clip_ratio_high",
    "learner.dual_clip": "learner.rl.dual_clip",
    "learner.mismatch_cap": "learner.rl.tis_cap",
    "learner.kl_coef": "learner.rl.kl_coef",
    "learner.ranks": "learner.parallel.data",
    "entropulse.rl_steps": "entropulse.rl_steps_per_phase",
    "entropulse.min_stay": "entropulse.min_phase_steps",
    "entropulse.window": "entropulse.plateau_window",
    "entropulse.patience": "entropulse.plateau_patience",
    "entropulse.max_waste": "entropulse.max_unused_groups",
    "evaluation.temperature": "sampling.eval_temperature",
    "evaluation.every_steps": "evaluation.interval",
    "evaluation.one_in": "evaluation.rollout_share",
}
GONE = {"run.expert": "every key may be set without it"}
VALUES = {
    ("desktops.provider.type", "hosts"): "ssh",
    ("prompt.format", "paper"): "published",
    ("demos.demonstrators[].format", "paper"): "published",
}
_CONVERT: dict[str, Callable[[Any], Any]] = {"evaluation.one_in": lambda every: 1 / every if every else 0.0}
_BACK: dict[str, Callable[[Any], Any]] = {"evaluation.one_in": lambda share: round(1 / share) if share else 0}


def instead(path: str, value: object = None) -> str:
    """What a file says now in place of the key at `path`, or of its `value`, as a clause; empty where nothing else."""
    key = re.sub(r"\.\d+(?=\.|$)", "[]", path)
    if key in KEYS:
        *rest, last = (_at(new, path) for new in KEYS[key].split())
        return f"it is {' and '.join([*rest, last])} now"
    if key in GONE:
        return f"it is gone: {GONE[key]}"
    return f"it is {VALUES[key, value]} now" if isinstance(value, str) and (key, value) in VALUES else ""


def _at(new: str, path: str) -> str:
    """The new key with the numbers that `path` has in a list's place."""
    numbers = iter(re.findall(r"\.\d+(?=\.|$)", path))
    return re.sub(r"\[\]", lambda _: next(numbers), new)


def translated(document: Mapping[str, Any]) -> dict[str, Any]:
    """A deploy file's plain content under the names of today."""
    found = copy.deepcopy(dict(document))
    for old, new in KEYS.items():
        for owner, value in _taken(found, old):
            for path in new.split() if value is not None else []:  # null stood for what another key said
                _put(owner if "[]" in old else found, path.rpartition("[].")[2], _CONVERT.get(old, _same)(value))
    for old in GONE:
        list(_taken(found, old))
    for (path, was), now in VALUES.items():
        for owner, value in _taken(found, path):
            owner[path.rpartition(".")[2]] = now if value == was else value
    return found


def before(document: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse, for digests that older builds made: plain content under the names that keys had first."""
    found = copy.deepcopy(dict(document))
    for (path, was), now in VALUES.items():
        for owner, value in _taken(found, path):
            owner[path.rpartition(".")[2]] = was if value == now else value
    for old, new in reversed(KEYS.items()):
        for path in new.split():
            for owner, value in _taken(found, path):
                _put(owner if "[]" in old else found, old.rpartition("[].")[2], _BACK.get(old, _same)(value))
    learner = found.get("learner", {})
    for of_one, of_all in (("rl_warmup_steps", "warmup_steps"), ("sft_lr_schedule", "lr_schedule")):
        if of_one in learner and learner[of_one] == learner.get(of_all):
            learner[of_one] = None
    for part in ("rl", "sft", "parallel"):
        if learner.get(part) == {}:
            del learner[part]
    return found


def override(text: str) -> list[str]:
    """A stored `--set` under the names of today; a key of which two were made is two of them."""
    path, _, value = text.partition("=")
    parts = path.strip().split(".")
    document: Any = yaml.safe_load(value)
    for part in reversed(parts):
        document = {part: document}
    now = translated(document)
    return [text] if now == document else [f"{at}={_flow(leaf)}" for at, leaf in _leaves(now, "")]


def _same(value: Any) -> Any:
    return value


def _taken(document: dict[str, Any], path: str) -> Iterator[tuple[dict[str, Any], Any]]:
    """The key at `path` out of `document`, with its mapping; of a list's entries each."""
    *parents, last = path.split(".")
    owners: list[Any] = [document]
    for name in parents:
        below = [owner.get(name.removesuffix("[]")) for owner in owners if isinstance(owner, dict)]
        owners = [each for one in below for each in (one if isinstance(one, list) else [one])]
    for owner in owners:
        if isinstance(owner, dict) and last in owner:
            yield owner, owner.pop(last)


def _put(document: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for name in parents:
        document = document.setdefault(name, {})
    document[last] = value


def _leaves(document: Any, at: str) -> Iterator[tuple[str, Any]]:
    if isinstance(document, dict) and document:
        for key, value in document.items():
            yield from _leaves(value, f"{at}.{key}" if at else str(key))
    elif document != {}:
        yield at, document


def _flow(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("\n").removesuffix("\n...")
