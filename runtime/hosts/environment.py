"""What of its environment a process passes on to the hosts that it starts.

Invariant: nothing is passed on but what is listed here and what a host's spec names: a key that a shell happens to
export reaches no host that has no use for it. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

NAMES = (
    "HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "TERM", "TMPDIR", "TZ", "USER",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
)  # fmt: skip
FAMILIES = (
    "COMPUTERRL_", "CUDA_", "GLOO_", "HF_", "KMP_", "LC_", "MKL_", "NCCL_", "NVIDIA_", "NVTE_", "SSL_CERT_", "TORCH",
    "TRITON_", "XDG_",
)  # fmt: skip
# Of this program's own processes on this machine. Elsewhere they would be settings of the program that places hosts.
HERE = ("OMP_", "PYTHON")
# The token of what this very process serves.
TOKEN_ENV = "COMPUTERRL_TOKEN"  # noqa: S105 - the variable's name


def passed(environment: Mapping[str, str], named: Collection[str] = ()) -> dict[str, str]:
    """What a host on this machine gets of `environment`; `named` are further names."""
    return {
        name: value
        for name, value in environment.items()
        if name in NAMES or name in named or (name.startswith(FAMILIES + HERE) and name != TOKEN_ENV)
    }
