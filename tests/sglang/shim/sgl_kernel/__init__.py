"""SGLang's kernels, which exist for GPUs and for CPUs with matrix units only.

Invariant: SGLang's plain CPU path needs the names when it is imported and calls none of them; a call says so.
"""

from __future__ import annotations

from typing import Any

from computerrl_cpu_shim import missing


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return missing(f"sgl_kernel.{name}")
