"""Handles of weights are read by a process that is no relative, as SGLang reads them."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from policy import broadcast
from policy.sharing import handles

READER = """
import base64, pickle, sys
import torch
for line in sys.stdin:
    for name, tensor in pickle.loads(base64.b64decode(line)):
        print(name, str(tensor.dtype), list(tensor.shape), float(tensor.double().sum()))
"""


@pytest.mark.slow
def test_another_process_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "PART_BYTES", 64)
    weights = {
        "a": torch.arange(1000, dtype=torch.float32),
        "b": torch.full((2, 3), 0.5, dtype=torch.bfloat16),
        "c": torch.arange(12.0).view(3, 4)[:, 1:3],
    }
    before = {name: tensor.clone() for name, tensor in weights.items()}
    parts = handles(weights)
    assert all(len(part) < 2000 for part in parts)
    assert all(torch.equal(weights[name], tensor) for name, tensor in before.items())
    command = [sys.executable, "-W", "ignore", "-c", READER]
    done = subprocess.run(command, input="\n".join(parts), capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.splitlines() == [
        f"{name} {tensor.dtype} {list(tensor.shape)} {float(tensor.double().sum())}" for name, tensor in before.items()
    ]
