"""SmolLM2-135M-Instruct as an ordinary model folder: `make smollm` runs it on a GGUF file, in which the weights come.

The folder appears complete or not at all. Its weights are the file's 4-bit numbers, written out in float32.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from policy import hf_folder
from policy.tensorfiles import HEAD


def convert(source: Path, folder: Path) -> None:
    """Write the model in the GGUF file `source` to `folder`."""
    place, name = str(source.parent), source.name
    tokenizer = AutoTokenizer.from_pretrained(place, gguf_file=name)
    model = AutoModelForCausalLM.from_pretrained(place, gguf_file=name, dtype=torch.float32)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config  # the numbers are no longer packed
    model.config.architectures = [type(model).__name__]  # SGLang asks for it
    with tempfile.TemporaryDirectory() as scratch:
        model.config.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
        GenerationConfig(eos_token_id=tokenizer.eos_token_id).save_pretrained(scratch)
        files = hf_folder.companions(Path(scratch))
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if name != HEAD}
    hf_folder.write(folder, tensors, files)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
