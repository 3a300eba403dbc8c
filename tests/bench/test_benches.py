"""Every bench has its flags, useful operations are those that torch counts, and one bench is run whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from policy.architecture import read_architecture
from tests.bench import shapes
from tests.bench.__main__ import BENCHES, CAPACITY, main
from tests.bench.seats import seats, standins
from tests.policy import tiny_models


@pytest.mark.parametrize("words", [*([name] for name in BENCHES), *(["capacity", name] for name in CAPACITY)])
def test_every_bench_has_its_flags(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    assert words[-1] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("tokens", "said"),
    [("many", "such as 4096,16384"), ("99999", "--tokens 99999: qwen2.5-0.5b has a context of 32768")],
)
def test_a_flag_that_makes_no_sense_is_named(tokens: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shapes", "--shapes", "qwen2.5-0.5b", "--tokens", tokens]) == 2
    assert said in capsys.readouterr().err


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


@pytest.mark.proof
def test_seats_play_whole_episodes_and_each_figure_is_there() -> None:
    options = ["--seats", "3", "--seconds", "3", "--period", "0.01", "--servers", "1", "--screen", "text"]
    command = [sys.executable, "-m", "tests.bench", "capacity", "seats", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)
    assert found["faults"] == {}
    assert found["steps"] > seats.TURNS
    assert found["episodes"] > 0
    figures = ("controller_ms", "main_ms", "reference_ms", "prompt_tokens")
    assert all(found[name] > 0 for name in figures)
    met = {target["name"].partition(",")[0]: target for target in found["targets"]}
    assert met["faults"]["measured"] == 0
    fed = seats.FED_PERIOD_S * 1e3 / (found["controller_ms"] * standins.REFERENCE_MS / found["reference_ms"])
    assert met["seats a core feeds at a step per 2 s"]["measured"] == pytest.approx(fed)
