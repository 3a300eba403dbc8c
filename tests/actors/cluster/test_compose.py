from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from actors.cluster.config import deploy_files
from actors.cluster.runs import compose
from actors.learner.rank import MEET_S
from apis.tasks.registry import kind_of
from policy.base import MODEL
from runtime.errors import ConfigError
from runtime.system import ActorSpec
from tests.actors.cluster.unplayed import planned
from tests.policy.chat_models import CHATML, write_tokenizer


@pytest.fixture(autouse=True)
def _model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.cluster.config.models.locate", lambda base: tmp_path)
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).symlink_to(MODEL / name)
    shutil.copy(MODEL / "tokenizer_config.json", tmp_path)  # tests write their own over it


def specs(plan: compose.Plan) -> dict[str, object]:
    return {spec.name: spec for stage in plan.stages for spec in stage}


def test_seats_wait_as_long_as_samplers_and_reservations_may_last() -> None:
    made = specs(planned("local", "samplers.generate_timeout_s=300", "replay.lease_s=2000"))
    seat = made["desktop/3"].config  # type: ignore[attr-defined]
    assert (seat.seat.generate_timeout_s, seat.desktops.pool.lease_s) == (305.0, 2000.0)


@pytest.mark.parametrize("name", sorted(deploy_files.bundled()))
def test_every_actor_of_a_bundled_plan_can_be_made(name: str) -> None:
    whole = ["learner.parallel.pipeline=1"] * (name == "gpu-8")  # the bundled model has three layers
    blind = ["prompt.observation=text"] * (name == "vision")  # and reads text alone
    plan = planned(name, *whole, *blind)
    hosts = {"main", *(host.name for host in plan.hosts)}
    for spec in specs(plan).values():
        assert spec.host in hosts  # type: ignore[attr-defined]
        wire = spec.wire()  # type: ignore[attr-defined]
        if not spec.name.startswith("rank"):  # type: ignore[attr-defined] - a rank loads torch
            assert wire.build() is not None


def test_a_learner_that_waits_leaves_its_core_to_others() -> None:
    """Where OpenMP spins, cloning beside other work takes several times its processor time."""
    rank = next(host for host in planned("local", "learner.rl.threads=2").hosts if host.name == "ranks/0")
    assert (rank.env["OMP_NUM_THREADS"], rank.env["OMP_WAIT_POLICY"]) == ("2", "PASSIVE")


def test_every_rank_has_a_process_and_knows_the_others() -> None:
    plan = planned("local", "learner.parallel.data=2", "learner.parallel.tensor=2")
    ranks = [spec for stage in plan.stages for spec in stage if spec.name.startswith("rank/")]
    assert [(spec.name, spec.host) for spec in ranks] == [(f"rank/{i}", f"ranks/{i}") for i in range(4)]
    assert {spec.config.ranks for spec in ranks} == {tuple(spec.name for spec in ranks)}  # type: ignore[attr-defined]
    assert [host.name for host in plan.hosts if host.name.startswith("ranks/")] == [spec.host for spec in ranks]


def test_ranks_have_time_to_meet_and_those_elsewhere_to_reach_the_shared_folder() -> None:
    """A single rank elsewhere may be silent as long as here."""
    place, starts, loads, silent = ("cluster.engine=ray", "learner.place={CPU: 1}"), [], [], []
    for overrides in ((), place, ("learner.parallel.data=2",), (*place, "learner.parallel.data=2")):
        plan = planned("local", *overrides)
        learner: ActorSpec = specs(plan)["learner"]  # type: ignore[assignment]
        starts.append(learner.start_timeout_s)
        loads.append(learner.config.load_timeout_s)  # type: ignore[union-attr]
        silent.append(next(host for host in plan.hosts if host.name == "ranks/0").silent_limit_s)
    assert [starts[2] - starts[0], starts[3] - starts[1]] == [2 * MEET_S] * 2
    assert silent == [300.0, 300.0, 300.0, 120.0]
    assert loads == [300.0, 4 * 3600.0] * 2
    assert all(start >= load for start, load in zip(starts, loads, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("token", ["<|user|>", "e12"])  # its questions begin with a token that ours has not, or not
def test_exercises_need_the_vocabulary_they_are_made_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    other = tmp_path / "other"
    shutil.copytree(MODEL, other)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (other / name).write_text((MODEL / name).read_text("utf-8").replace(f'"{token}"', '"<|asks|>"'), "utf-8")
    monkeypatch.setattr("actors.cluster.config.models.locate", lambda base: other)
    assert planned("local", "learner.rehearsal=0")
    with pytest.raises(ConfigError, match=r"learner\.rehearsal is 8: .* another vocabulary"):
        planned("local", "learner.rehearsal=8")


def test_a_curriculum_gets_the_kind_of_every_train_task() -> None:
    tasks = "tasks.train=[{family: file_manager, split: train, count: 3}, text_editor/train/0]"
    assert specs(planned("local", tasks, "replay.curriculum=none"))["replay"].config.train_kinds == []  # type: ignore[attr-defined]
    found = specs(planned("local", tasks, "replay.curriculum=learnability"))["replay"].config
    assert found.train_kinds == [kind_of(task) for task in found.train_tasks]  # type: ignore[attr-defined]
    assert {kind.partition("/")[0] for kind in found.train_kinds} == {"file_manager", "text_editor"}  # type: ignore[attr-defined]


def test_rounds_stand_apart_from_rl_on_engines_of_one_version() -> None:
    sglang = ["samplers.engine={type: sglang}"]
    assert not specs(planned("local"))["replay"].config.single_version  # type: ignore[attr-defined]
    assert specs(planned("local", *sglang))["replay"].config.single_version  # type: ignore[attr-defined]
    attached = planned("local", "samplers.attach=['http://localhost:1']")
    assert specs(attached)["replay"].config.single_version  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"evaluation\.rollout_share is 0\.125, and SGLang holds one version"):
        planned("local", *sglang, "evaluation.rollout_share=0.125")


def test_trials_are_judged_on_some_training_tasks_of_every_family() -> None:
    trials = "entropulse.pulse=trials"
    supervisor = specs(planned("local", trials))["entropulse"].config
    tasks: list[str] = supervisor.trial_tasks  # type: ignore[attr-defined]
    assert len(tasks) == 100
    assert len({task.split("/")[0] for task in tasks}) == 8
    assert {task.split("/")[1] for task in tasks} == {"train"}
    assert specs(planned("local"))["entropulse"].config.trial_tasks == []  # type: ignore[attr-defined]
    with pytest.raises(
        ConfigError, match=r"^entropulse\.pulse is trials: entropulse\.rl_steps_per_phase says how many"
    ):
        planned("local", trials, "entropulse.rl_steps_per_phase=0")
    with pytest.raises(
        ConfigError, match=r"^entropulse\.pulse is trials: tasks\.train has 12 tasks, and one is judged on 20"
    ):
        planned("local", trials, "tasks.train=[{family: terminal_files, split: train, count: 12}]")
    with pytest.raises(ConfigError, match=r"^entropulse\.pulse is trials: entropulse\.pulse_steps says how long"):
        planned("local", trials, "entropulse.pulse_steps=0")


def test_a_pulse_has_demonstrations_to_learn_only_where_the_run_has_some() -> None:
    cloning = ["demos.count=0", "demos.resample_rounds=0", "run.require.bc_steps=0"]
    with pytest.raises(ConfigError, match=r"^entropulse\.bc_steps is \d+, but demos\.count is 0: it says how many"):
        planned("local", *cloning, "demos.source=cold")
    none = [*cloning, "entropulse.bc_steps=0"]
    assert specs(planned("local", *none, "replay.pulse_demos=0"))["replay"].config.rules.pulse_demos == 0  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"^replay\.pulse_demos is 9, but demos\.count is 0"):
        planned("local", *none, "replay.pulse_demos=9")
    assert planned("local", *none, "replay.pulse_demos=9", "entropulse.pulses=0")
    alone = ["replay.pulse_demos=0", "replay.pulse_per_task=0"]
    assert planned("local", *alone)
    with pytest.raises(ConfigError, match=r"^replay\.pulse_per_task, .* and learner\.rehearsal are 0: a pulse learns"):
        planned("local", *alone, "learner.rehearsal=0")


def test_options_of_rl_without_what_they_work_on_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"^learner\.rl\.entropy_coef is 0\.01: .*learner\.rl\.entropy_target"):
        planned("local", "learner.rl.entropy_coef=0.01")
    assert not specs(planned("local"))["replay"].config.own_reward  # type: ignore[attr-defined]
    assert specs(planned("local", "learner.rl.reward=math:sin"))["replay"].config.own_reward  # type: ignore[attr-defined]


def test_weights_go_by_disk_or_by_collective() -> None:
    assert specs(planned("local"))["learner"].config.groups is None  # type: ignore[attr-defined]
    sglang = ["samplers.engine={type: sglang}", "weight_sync.transport=collective"]
    for more, expected in [
        ([], "gloo"),
        (["samplers.device=cuda", 'samplers.gpus=["1"]'], "nccl"),
        (["samplers.attach=[http://127.0.0.1:30000]"], "gloo"),
    ]:
        groups = specs(planned("local", *sglang, *more))["learner"].config.groups  # type: ignore[attr-defined]
        assert groups.backend == expected
    with pytest.raises(ConfigError, match=r"weight_sync\.transport is collective"):
        planned("local", "weight_sync.transport=collective")


def test_memory_is_shared_with_an_engine_of_this_machine() -> None:
    shared = ["weight_sync.transport=shared", "samplers.engine={type: sglang}"]
    assert specs(planned("local", *shared))["learner"].config.transport == "shared"  # type: ignore[attr-defined]
    for more, why in [
        (["samplers.engine={type: embedded}"], "shared, which the embedded engine can't take"),
        (["samplers.attach=[http://192.0.2.1:30000]"], "192.0.2.1:30000 has other memory"),
        (["samplers.device=cuda", 'samplers.gpus=["1"]'], "1 has other memory"),
    ]:
        with pytest.raises(ConfigError, match=why):
            planned("local", *shared, *more)


def test_adapters_go_where_there_are_some() -> None:
    made = specs(
        planned("local", "weight_sync.transport=adapter", "learner.lora.rank=4", "learner.lora.targets=[q_proj]")
    )
    assert made["learner"].config.transport == "adapter"  # type: ignore[attr-defined]
    sampler = made["sampler/0"].config
    assert (sampler.adapter_rank, sampler.adapter_targets) == (4, ["q_proj"])  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"weight_sync\.transport is adapter, and learner\.lora\.rank is 0"):
        planned("local", "weight_sync.transport=adapter")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("prompt.observation=text", "prompt.observation is text"),
        ("weight_sync.transport=collective", "embedded engines by disk"),
        ("learner.lora.rank=4", "learner.lora.rank 0"),
        ("learner.parallel.tensor=2", "learner.parallel.tensor and"),
    ],
)
def test_a_tower_is_trained_where_its_gradient_is_whole_and_engines_get_it(other: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"learner.vision is merger.*{said}"):
        planned("local", "prompt.observation=picture", "desktops.memo=off", "learner.vision=merger", other)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (
            "{% if 'assistant' in messages | map(attribute='role') %}{{ raise_exception('one question') }}{% endif %}"
            + CHATML.template,
            "step 2 .*one question",
        ),
        ("{{ messages[-1].content }}", "step 2 .*drops"),
    ],
)
def test_a_chat_template_without_real_turns_takes_one_question_at_a_time(
    tmp_path: Path, template: str, said: str
) -> None:
    (tmp_path / "tokenizer.json").unlink()
    write_tokenizer(tmp_path, "", CHATML._replace(template=template))
    assert specs(planned("local", "learner.rehearsal=0"))
    with pytest.raises(ConfigError, match=rf"prompt.format is published: at {said}.*prompt.format=compact"):
        planned("local", "learner.rehearsal=0", "prompt.format=published")
