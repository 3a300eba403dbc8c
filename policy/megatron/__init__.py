"""The learner's half of the policy, on Megatron-core. Importing the package makes machines without CUDA usable.

On a machine with CUDA nothing here changes anything; without it each `cuda` of Megatron-core means `cpu`.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

ON_CPU = not torch.cuda.is_available()
_TENSORBOARD = "torch.utils.tensorboard"


class CudaMeansCpu(TorchFunctionMode):
    """While active, literal `cuda` devices in torch calls become `cpu` and CPU tensors report CUDA type names.

    Costs a Python call per torch function, so it is entered only around the few places that need it.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.cuda:
            return args[0]
        if "device" in kwargs and str(kwargs["device"]).startswith("cuda"):
            kwargs = {**kwargs, "device": "cpu"}
        result = func(*args, **kwargs)
        if func is torch.Tensor.type and len(args) == 1 and not kwargs and ".cuda." not in result:
            return result.replace("torch.", "torch.cuda.", 1)
        return result


def cuda_literals() -> AbstractContextManager[Any]:
    """Context for building models and optimizers, optimizer steps and loads."""
    return CudaMeansCpu() if ON_CPU else nullcontext()


def install() -> None:
    """Point the CUDA calls Megatron makes at the CPU; idempotent, and does nothing where CUDA is present."""
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    if not ON_CPU or getattr(torch.cuda.current_device, "means_cpu", False):
        return

    def current_device() -> torch.device:
        return torch.device("cpu")

    current_device.means_cpu = True  # type: ignore[attr-defined]
    cuda: Any = torch.cuda
    cuda.current_device = current_device
    cuda.get_rng_state = lambda device="cuda": torch.get_rng_state()
    cuda.set_rng_state = lambda state, device="cuda": torch.set_rng_state(state)
    cuda.manual_seed = torch.manual_seed
    cuda.synchronize = lambda device=None: None
    cuda.current_stream = lambda device=None: None  # Megatron-core 0.19 asks for it, and for nothing of it
    # Megatron compiles small functions when it is imported: that needs a C++ toolchain, and the compiler alone takes
    # seconds to import.
    library: Any = torch
    compiles, library.compile = torch.compile, lambda function: function
    # Its timers may write for TensorBoard, which they are never asked to: they do without where it is missing.
    modules: dict[str, Any] = sys.modules
    missing = modules.setdefault(_TENSORBOARD, None) is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of fused kernels that are missing, as they are on a CPU
        import megatron.core.optimizer  # noqa: F401
        import megatron.core.tensor_parallel.random as tracker
    library.compile = compiles
    if missing:
        del modules[_TENSORBOARD]
    # The tracker of random states reaches past torch.cuda into CUDA's default generators.
    tracker._set_cuda_rng_state = lambda state, device=-1, graph_safe=False: torch.set_rng_state(state)
    tracker._get_cuda_rng_state = lambda device="cuda", clone=False, graph_safe=False: torch.get_rng_state()


install()
