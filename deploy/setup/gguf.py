"""A GGUF file as an ordinary model folder: `make gguf FILE=model.gguf FOLDER=models/NAME`, and `make smollm`.

Any architecture that learner and engine know is converted. The file's packed numbers are written out in float32. The
folder appears complete or not at all.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from policy import hf_folder
from policy.architecture import read_architecture
from policy.tensorfiles import HEAD
from runtime.errors import ConfigError


def convert(source: Path, folder: Path) -> None:
    """Write the model in the GGUF file `source` to `folder`.

    Raises ConfigError for a file that is no GGUF or of another architecture, and for a folder that is there.
    """
    if folder.exists():
        raise ConfigError(f"{folder} is there already: name another folder, or remove it")
    place, name = str(source.parent), source.name
    try:
        model = AutoModelForCausalLM.from_pretrained(place, gguf_file=name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(place, gguf_file=name)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{source}: no GGUF file that can be read: {str(error).strip().splitlines()[0]}") from error
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config  # the numbers are no longer packed
    model.config.architectures = [type(model).__name__]  # SGLang asks for it
    tied = model.config.tie_word_embeddings
    tensors = {key: tensor.contiguous() for key, tensor in model.state_dict().items() if key != HEAD or not tied}
    with tempfile.TemporaryDirectory() as scratch:
        model.config.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
        GenerationConfig(eos_token_id=tokenizer.eos_token_id).save_pretrained(scratch)
        try:
            read_architecture(Path(scratch))
        except ConfigError as error:
            raise ConfigError(f"{source}: {error}".replace(f"{scratch}/", "its ")) from error
        files = hf_folder.companions(Path(scratch))
    hf_folder.write(folder, tensors, files)


if __name__ == "__main__":
    try:
        convert(Path(sys.argv[1]), Path(sys.argv[2]))
    except ConfigError as error:
        sys.exit(f"gguf: {error}")
