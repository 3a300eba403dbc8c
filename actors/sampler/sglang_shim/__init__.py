"""What SGLang imports and a machine without a GPU does not have.

Invariant: nothing here is imported by this program. `make sglang-cpu` puts this folder on the import path of SGLang's
own environment by a .pth file, so that every process that SGLang spawns finds it; an environment for CUDA has none.
"""
