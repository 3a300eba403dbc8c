"""A step of TRL's asynchronous GRPO on our desktops. `make extras` installs what this needs.

Its trainer, its rollout process and OpenEnv's sessions are the real ones. Two things that need a GPU are replaced: vLLM
by a server of its routes that draws from the trainer's model, and its attention kernel by torch's attention.
"""

from __future__ import annotations

import functools
import math
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("openenv", reason="openenv is not installed: make extras")
pytest.importorskip("trl", reason="trl is not installed: make extras")

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"  # before it is imported, here and in its own process

import orjson
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from trl.experimental.async_grpo import (
    AsyncGRPOConfig,
    AsyncGRPOTrainer,
    async_grpo_trainer,
    async_rollout_worker,
    packing,
)
from trl.experimental.async_grpo.openenv_harness import HarnessRolloutOutcome, HarnessRolloutWorker

from actors.cluster.config import models
from actors.front.openenv_sessions import AnswerTurns, DesktopSessions
from tests.extras.served import served

GROUP, TURNS, TOKENS = 2, 2, 24
TASK = "text_editor/train/3"


class StandInEngine:
    """vLLM's completion route and the trainer's transfer of weights, by a model on the CPU."""

    def __init__(self, folder: str) -> None:
        self.model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.synced = 0
        self.drawn = 0
        self._lock = threading.Lock()
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answer = orjson.dumps(engine.draw(body))
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Keep quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def draw(self, body: dict[str, Any]) -> dict[str, Any]:
        prompt = torch.tensor([body["prompt"]])
        with self._lock, torch.no_grad():
            torch.manual_seed(body["seed"] % 2**31)
            out = self.model.generate(
                prompt, max_new_tokens=body["max_tokens"], do_sample=True, top_k=0, top_p=1.0, temperature=1.0,
                attention_mask=torch.ones_like(prompt), return_dict_in_generate=True, output_logits=True,
            )  # fmt: skip
            ids = out.sequences[0, prompt.shape[1] :]
            logprobs = [step[0].log_softmax(-1)[token].item() for step, token in zip(out.logits, ids, strict=True)]
            self.drawn += 1
        return {"choices": [{"token_ids": ids.tolist(), "logprobs": {"token_logprobs": logprobs}}]}

    def init_weight_transfer(self) -> None:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def pause(self) -> None:
        self._lock.acquire()

    def send_weights(self, iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
        self.model.load_state_dict(dict(iterator), strict=False)
        self.synced += 1

    def resume(self) -> None:
        self._lock.release()

    def destroy(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, cu_q: torch.Tensor, cu_k: torch.Tensor, *_: int,
    softmax_scale: float | None, causal: bool, window_size: tuple[int, int],
) -> torch.Tensor:  # fmt: skip
    """Each segment of queries over its own path of keys, whose end is the segment's."""
    assert causal
    assert window_size == (-1, -1)
    scale = softmax_scale or 1 / math.sqrt(query.shape[-1])
    pieces = []
    for (q0, q1), (k0, k1) in zip(cu_q.unfold(0, 2, 1).tolist(), cu_k.unfold(0, 2, 1).tolist(), strict=True):
        mask = torch.ones(q1 - q0, k1 - k0, dtype=torch.bool).tril(k1 - k0 - (q1 - q0))
        one = torch.nn.functional.scaled_dot_product_attention(
            query[q0:q1].transpose(0, 1), key[k0:k1].transpose(0, 1), value[k0:k1].transpose(0, 1), attn_mask=mask,
            scale=scale, enable_gqa=True,
        )  # fmt: skip
        pieces.append(one.transpose(0, 1))
    return torch.cat(pieces)


def reward(outcome: HarnessRolloutOutcome) -> float:
    """A model that was taught nothing solves nothing: how much it says makes a group's rewards differ."""
    assert outcome.env_reward == 0.0
    return outcome.env_reward + 0.01 * sum(len(message["content"]) for message in outcome.completion)


@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("default")  # of its own libraries
def test_a_step_of_its_asynchronous_grpo_is_learned_from_episodes_on_desktops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_rollout_worker, "is_vllm_available", lambda: True)
    monkeypatch.setattr(async_grpo_trainer, "get_peak_flops_per_device", lambda *_: 1e12)
    monkeypatch.setattr(packing, "_flash_attn", lambda: SimpleNamespace(flash_attn_varlen_func=attention))
    folder = str(models.bundled())
    tokenizer, engine = AutoTokenizer.from_pretrained(folder), StandInEngine(folder)
    text = {"close_pattern": r"<\|end\|>", "content": "text"}
    tokenizer.response_template = {"start_anchor": "<|assistant|>", "fields": {"content": text}}
    dataset = Dataset.from_dict({"prompt": [[{"role": "user", "content": TASK}]] * GROUP})
    with served("text_editor", "--count", "8", "--max-turns", str(TURNS)) as address:
        worker = HarnessRolloutWorker(
            harness_session_factory=functools.partial(DesktopSessions, address), harness_adapter=AnswerTurns(),
            rollout_reward_fn=reward, model_name=folder, dataset=dataset, reward_funcs=[], processing_class=tokenizer,
            eos_token_ids=[tokenizer.eos_token_id], num_generations=GROUP, max_inflight_tasks=1, max_tokens=TOKENS,
            vllm_server_url=engine.url, queue_maxsize=64,
        )  # fmt: skip
        trainer = AsyncGRPOTrainer(
            model=folder, processing_class=tokenizer, train_dataset=dataset, rollout_worker=worker,
            weight_transfer=engine,
            args=AsyncGRPOConfig(
                output_dir=str(tmp_path), per_device_train_batch_size=GROUP, num_generations=GROUP, max_steps=1,
                use_cpu=True, bf16=False, report_to="none", learning_rate=1e-3, save_strategy="no", token_budget=0,
                disable_tqdm=True,
            ),
        )  # fmt: skip
        before = {name: value.clone() for name, value in trainer.model.named_parameters()}
        trainer.train()
    figures = trainer.state.log_history[0]
    assert figures["reward_std"] > 0
    assert figures["grad_norm"] > 0
    assert engine.drawn >= GROUP * TURNS
    assert engine.synced >= 2, "before the first answer, and after the step"
    assert any(not torch.equal(before[name], value) for name, value in trainer.model.named_parameters())
