"""`make bench NAME=learner` on a run whose episodes share prompts, and on runs it can't measure."""

from __future__ import annotations

import json
import random
import shutil
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
import torch

from actors.cluster.config import deploy_files, models
from actors.cluster.config.schema import Deploy
from actors.cluster.runs import run_folder
from actors.replay.database.ledger_file import connect
from actors.replay.messages import StepPayload, StepRef, VersionSpan
from policy.architecture import read_architecture
from runtime.messaging.message import Version
from runtime.segments import SegmentStore
from tests.bench import learner, shapes
from tests.bench.__main__ import main
from tests.policy import tiny_models

SIZE, PROMPT, ANSWER = 4, 40, 5


def payload(rng: random.Random, prompt: list[int]) -> StepPayload:
    plain = {
        "prompt_ids": prompt, "response_ids": [rng.randrange(2, 1000) for _ in range(ANSWER)],
        "logprobs": [-rng.random() for _ in range(ANSWER)], "temperature": 1.0, "observation": "", "response": "",
        "spans": [VersionSpan(version=Version(lineage=0, step=1), start=0, end=ANSWER)], "action": None,
        "refusal": None, "result": None, "screenshot": None, "observe_ms": 0.0, "generate_ms": 0.0, "act_ms": 0.0,
    }  # fmt: skip
    return msgspec.convert(plain, StepPayload)


def trained_run(folder: Path, successes: dict[int, list[bool]], *, lost: int = 0) -> Path:
    """A run with one-step episodes whose groups begin with one prompt each; of group `lost` no payload is left."""
    record = run_folder.RunRecord(
        name=folder.name, file="local", seed=0, build="", versions={}, started=run_folder.iso(0), started_s=0.0
    )
    run_folder.claim(folder, record, resume=False).end("ok", None)
    (folder / "deploy.yaml").write_text(deploy_files.dump(Deploy()))
    shutil.copytree(models.bundled(), folder / "kept" / "0.1")
    rng, store, token = random.Random(3), SegmentStore(folder / "segments", "desktop-0"), 0
    with closing(connect(folder / "ledger.sqlite")[0]) as ledger:
        for group, wins in successes.items():
            prompt = [rng.randrange(2, 1000) for _ in range(PROMPT)]
            for success in wins:
                token += 1
                ledger.execute(
                    "INSERT INTO episodes(token, lane, task, stay, group_id, success, feasible, reason, wall_s, busy_s,"
                    " ended_step) VALUES (?, 'train', ?, 1, ?, ?, 1, 'verified', 1.0, 1.0, 1)",
                    (token, f"a/train/{group}", group, success),
                )
                blob = store.append(msgspec.msgpack.encode(payload(rng, prompt)))
                if group == lost:
                    blob = msgspec.structs.replace(blob, digest="0" * 32)
                step = StepRef(blob=blob, prompt_tokens=PROMPT, response_tokens=ANSWER, well_formed=True, oldest=None)
                ledger.execute("INSERT INTO steps VALUES (?, 0, 1, ?)", (token, msgspec.msgpack.encode(step)))
        ledger.commit()
    store.close()
    return folder


@pytest.mark.slow
def test_all_ways_compute_the_same_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learner, "CHEAPER", 0.0)  # a step of eight samples is no measure
    mixed = [True, False, True, False]
    trained_run(tmp_path / "runs" / "one", {1: mixed, 2: [True] * SIZE, 3: mixed, 4: mixed}, lost=4)
    at = ["--runs", str(tmp_path / "runs"), "--times", "1"]
    assert main(["learner", "--run", "one", *at]) == 0
    found = json.loads(capsys.readouterr().out)
    # Of the group of equal success nothing is learned, of group 4 nothing is stored.
    assert (found["groups"], found["samples"]) == (2, 2 * SIZE)
    tokens = {step["way"]: step["tokens"] for step in found["steps"]}
    assert tokens == {"shared": 2 * (PROMPT + SIZE * ANSWER), "whole": 2 * SIZE * (PROMPT + ANSWER)}
    assert found["off_by"] < 1e-4


def test_a_shape_is_timed_with_random_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tiny").mkdir()
    shape = tmp_path / "tiny" / "config.json"
    shape.write_text(json.dumps(tiny_models.config("qwen3", tied=True, layers=1)))
    asked = ["shapes", "--shapes", str(tmp_path / "tiny"), "--tokens", "8,24", "--times", "1"]
    assert main([*asked, "--peak", "0.5"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["dtype"], found["targets"], [one["tokens"] for one in found["speeds"]]) == ("float32", [], [8, 24])
    for one in found["speeds"]:
        assert one["tokens_per_s"] == pytest.approx(one["tokens"] / one["step_s"])
        assert one["used"] == pytest.approx(one["tflops"] / 0.5)
    assert main([*asked, "--recompute", "full"]) == 0
    assert "no peak is known of cpu" in capsys.readouterr().out
    assert main([*asked, "--tokens", "1024"]) == 2
    assert "--tokens 1024" in capsys.readouterr().err
    assert main([*asked, "--tokens", "many"]) == 2
    assert "such as 4096,16384" in capsys.readouterr().err


def test_useful_operations_are_those_of_torch_s_own_count(tmp_path: Path) -> None:
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import AutoModelForCausalLM

    folder = tiny_models.write(tmp_path / "model", "qwen3", tied=True)
    arch, ids = read_architecture(folder), torch.arange(64)[None]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    with FlopCounterMode(display=False) as counted:
        model(ids).logits.sum().backward()
    whole = 3 * 64 * 2 * arch.layers * arch.heads * arch.head_dim * 64  # eager attention computes the masked half, too
    assert counted.get_total_flops() == pytest.approx(shapes.operations(arch, 64) + whole, rel=0.01)
