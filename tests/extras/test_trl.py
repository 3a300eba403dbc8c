"""A step of TRL's GRPO on our desktops. `make extras` installs what this needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openenv", reason="openenv is not installed: make extras")
pytest.importorskip("trl", reason="trl is not installed: make extras")

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from actors.cluster.config import models
from tests.extras.served import served, session

GROUP, TURNS, TOKENS = 2, 2, 24


def episode(env: Any, task: str, trainer: Any) -> dict[str, Any]:
    """The tokens of an episode of `TURNS` turns, those of the desktop masked out, and its reward."""
    tokenizer, model = trainer.processing_class, trainer.model
    result = env.reset(task=task)
    ids = first = tokenizer(result.observation["prompt"], return_tensors="pt").input_ids
    mask: list[int] = []
    for _ in range(TURNS):
        with torch.no_grad():
            longer = model.generate(ids, max_new_tokens=TOKENS, do_sample=True, pad_token_id=tokenizer.eos_token_id)
        drawn = longer.shape[1] - ids.shape[1]
        result = env.step({"text": tokenizer.decode(longer[0, ids.shape[1] :], skip_special_tokens=True)})
        told = tokenizer(result.observation["prompt"], return_tensors="pt").input_ids.long()
        ids = torch.cat([longer, told], dim=1)
        mask += [1] * drawn + [0] * told.shape[1]
        if result.done:
            break
    # A model that was taught nothing solves nothing. How much it says makes a group's rewards differ.
    reward = float(result.reward or 0.0) + 0.01 * sum(mask) + 0.001 * len(trainer.seen)
    trainer.seen.append(result.observation["task"])
    completion = ids[0, first.shape[1] :].tolist()
    with torch.no_grad():
        logits = model(ids).logits[0, first.shape[1] - 1 : -1].log_softmax(-1)
    logprobs = logits.gather(1, ids[0, first.shape[1] :, None])[:, 0].tolist()
    return {
        "prompt_ids": first[0].tolist(), "completion_ids": completion, "logprobs": logprobs, "env_mask": mask,
        "reward": reward,
    }  # fmt: skip


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("default")  # of its own libraries
def test_a_grpo_step_is_learned_from_episodes_on_desktops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    folder = models.bundled()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    before = {name: value.clone() for name, value in model.named_parameters()}
    with served("text_editor", "--count", "8") as address:

        def rollouts(prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
            with session(address) as env:
                played = [episode(env, task, trainer) for task in prompts]
            return {key: [one[key] for one in played] for key in played[0]}

        trainer = GRPOTrainer(
            model=model,
            processing_class=AutoTokenizer.from_pretrained(folder),
            reward_funcs=lambda reward, **_: reward,
            train_dataset=Dataset.from_dict({"prompt": ["text_editor/train/3"] * GROUP}),
            rollout_func=rollouts,
            args=GRPOConfig(
                output_dir=str(tmp_path), per_device_train_batch_size=GROUP, num_generations=GROUP, max_steps=1,
                use_cpu=True, bf16=False, report_to="none", logging_steps=1, learning_rate=1e-3, save_strategy="no",
                disable_tqdm=True,
            ),
        )  # fmt: skip
        trainer.seen = []
        trainer.train()
    assert trainer.seen == ["text_editor/train/3"] * GROUP
    figures = trainer.state.log_history[0]
    assert figures["reward_std"] > 0
    assert figures["grad_norm"] > 0
    assert any(not torch.equal(before[name], value) for name, value in model.named_parameters())
