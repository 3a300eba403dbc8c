#!/usr/bin/env bash
# The main job with real SGLang, shortened to some minutes: demonstrations, cloning, an RL step on rewards that differ, a
# pulse and another step; three rounds, the first of which is put off while RL draws.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
short=(
    run.limit_s=3600 "run.require={bc_steps: 1, rl_steps: 1}"
    "tasks.train=[{family: file_manager, split: train, count: 8, first: 1000}]"
    "tasks.eval=[{family: file_manager, split: held-out, count: 24}]"
    "tasks.demo=[{family: file_manager, split: train, count: 64}]" tasks.max_turns=6
    demos.count=48 "demos.demonstrators=[]" demos.attempts_per_task=1 demos.mixed_attempts=0 demos.resample_rounds=0
    desktops.count=4 desktops.screenshots=none
    replay.groups_per_step=1 replay.group_size=4 replay.min_group_size=2 sampling.max_new_tokens=64 replay.sft_batch_size=16
    learner.checkpoint_every=20 learner.sft.warmup_steps=5
    entropulse.bc_steps=80 entropulse.total_rl_steps=2 entropulse.rl_steps_per_phase=1 entropulse.pulses=1 entropulse.pulse_steps=20
    entropulse.max_unused_groups=40
)
.venv/bin/computerrl run deploy/local-sglang.yaml --runs "$runs" --name sglang "${short[@]/#/--set=}"
code=$?
[ $code = 0 ] || .venv/bin/computerrl logs sglang --runs "$runs" --level warning | tail -n 60
exit $code
