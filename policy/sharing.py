"""Weights for an engine of the same machine: handles of memory that both processes see, in place of bytes.

Tensors on a GPU are named by CUDA IPC, which an engine on the same card reads without a copy through the host. Others
are moved into the host's shared memory, once. What a handle names has to be kept until the engine has read it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from multiprocessing.reduction import ForkingPickler

import torch.multiprocessing
from torch import Tensor

from policy.broadcast import described, split


def handles(tensors: Mapping[str, Tensor]) -> list[str]:
    """Parts of `tensors` as SGLang takes them: base64 of a pickle of (name, handle), a few hundred bytes a tensor."""
    before = torch.multiprocessing.get_sharing_strategy()
    # By names of files: a process that is no relative gets no descriptors.
    torch.multiprocessing.set_sharing_strategy("file_system")
    try:
        parts = [[(name, tensors[name].detach()) for name in part.names] for part in split(described(tensors))]
        return [base64.b64encode(ForkingPickler.dumps(part)).decode() for part in parts]
    finally:
        torch.multiprocessing.set_sharing_strategy(before)
