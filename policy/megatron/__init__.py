"""The learner's half of the policy, on Megatron-core. Importing the package makes CUDA-less machines usable."""

from policy.megatron import shim

__all__ = ["shim"]
