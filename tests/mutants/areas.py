"""Which modules are mutated, and which quick tests each has.

The tests of a module need no desktop, and together take seconds; the likeliest to notice come first.
"""

from __future__ import annotations

REPLAY = "tests/actors/replay/"
RUNTIME, SAMPLER = "tests/runtime/", "tests/actors/sampler/"
PURE, PULSE = REPLAY + "test_pure.py", REPLAY + "test_pulse.py"
CORE = [REPLAY + name for name in ("test_late_and_strange.py", "test_ledger.py", "test_ledger_phases.py")]
SCHEDULE = "tests/actors/learner/test_schedule.py"
ONCE = "tests/invariants/test_groups_end_once.py"
OUTSIDE = [
    "tests/actors/desktop/test_provider_outside.py", "tests/actors/desktop/test_office_reader.py",
    "tests/actors/desktop/test_workbooks.py",
]  # fmt: skip
GRAMMAR = [
    "tests/apis/test_grammar.py", "tests/apis/test_reasoning.py",
    "tests/apis/test_observation_and_forms.py", "tests/apis/test_space.py",
    "tests/invariants/test_model_output_is_data.py",
]  # fmt: skip

# area -> module -> tests
AREAS: dict[str, dict[str, list[str]]] = {
    "ledger": {
        "actors/replay/rules/groups.py": [PURE, *CORE, PULSE],
        "actors/replay/rules/admission.py": [PURE, *CORE],
        "actors/replay/ledger/phases.py": [*CORE, REPLAY + "test_evidence.py"],
        "actors/replay/ledger/training.py": [
            REPLAY + "test_steps.py", REPLAY + "test_signal.py",
            *CORE, PULSE, SCHEDULE, ONCE,
        ],
        "actors/replay/rules/cold_start.py": [
            REPLAY + "test_cold_start.py", REPLAY + "test_demos.py",
        ],
    },
    "hosts": {
        "runtime/supervision.py": [RUNTIME + "test_supervision.py", REPLAY + "test_task_quarantine.py"],
        "runtime/hosts/process.py": [
            RUNTIME + name
            for name in ("test_actors.py", "test_clock.py", "test_changing.py", "test_hosts.py", "test_waits.py")
        ],
        "runtime/clock.py": [RUNTIME + "test_clock.py"],
    },
    "weights": {
        "actors/sampler/health.py": [
            SAMPLER + "test_weights.py", SAMPLER + "test_gate_and_loader.py",
        ],
        "actors/sampler/loader.py": [SAMPLER + "test_gate_and_loader.py"],
        "actors/sampler/weights.py": [SAMPLER + "test_weights.py"],
    },
    "trust": {
        "apis/actions/arguments.py": [*GRAMMAR, "tests/apis/test_sight.py"],
        "apis/functions/values.py": [
            "tests/apis/test_kinds.py", "tests/apis/test_functions.py",
        ],
        "actors/desktop/faults.py": [
            "tests/actors/desktop/test_fault_causes.py", "tests/invariants/test_faults_are_not_outcomes.py",
            "tests/actors/desktop/test_episode_faults.py",
        ],
        "apis/actions/grammar.py": GRAMMAR,
        "actors/desktop/files/read_home.py": OUTSIDE,
        "actors/desktop/files/census.py": [*OUTSIDE, "tests/actors/desktop/test_census.py"],
        "actors/desktop/files/worker.py": OUTSIDE,
    },
    "losses": {
        "policy/losses.py": ["tests/policy/test_losses.py"],
        "policy/advantage.py": ["tests/policy/test_advantage.py", "tests/actors/learner/test_batches.py"],
        "policy/packing.py": ["tests/policy/test_packing.py", "tests/actors/learner/test_batches.py"],
        "actors/learner/batches.py": [
            "tests/actors/learner/test_batches.py", SCHEDULE, "tests/actors/learner/test_plan_file.py",
        ],
    },
    "resume": {
        "actors/cluster/runs/requests.py": ["tests/actors/cluster/test_resume.py", "tests/actors/cluster/test_fork.py"],
    },
}  # fmt: skip
PRELOADED = {"losses": ["torch"]}  # what an area's tests load that takes seconds, beside what all do
