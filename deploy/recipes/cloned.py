"""Make deploy/learn, the weights called `cloned` in commands: `python -m deploy.recipes.cloned [OUT]`.

They are those of the main job after cloning, with seed 0 and before any RL: fifteen minutes on two idle cores. What is
bundled was made at commit 96b8ff3b, when the job resampled, with numbers of two bytes like the base model's.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

COMMAND = [str(Path(sys.executable).with_name("computerrl"))]
CLONING = [
    "demos.source=deploy/demos/local.parquet",
    "run.require={bc_steps: 900}",
    "entropulse.total_rl_steps=0",
]


def halved(folder: Path) -> None:
    """Write the weights of a Hugging Face folder again with two bytes for each number."""
    file = folder / "model.safetensors"
    numbers = {name: tensor.to(torch.float16).contiguous() for name, tensor in load_file(file).items()}
    save_file(numbers, file, metadata={"format": "pt"})
    for part in (folder, *folder.iterdir()):
        part.chmod(0o755 if part.is_dir() else 0o644)


def main(out: Path) -> None:
    """Clone, export, halve."""
    sets = [word for one in CLONING for word in ("--set", one)]
    subprocess.run([*COMMAND, "run", "local", *sets, "--name", "cloned"], check=True)
    subprocess.run([*COMMAND, "export", "cloned", str(out), "--at", "after_bc"], check=True)
    halved(out)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "deploy/learn"))
