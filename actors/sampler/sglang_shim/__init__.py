"""What SGLang imports and a machine without a GPU does not have.

Invariant: this program imports nothing from here. `make sglang-cpu` puts this folder on the import path of SGLang's
environment, by a .pth file. Every process that SGLang spawns therefore finds it. An environment for CUDA has no such
file.
"""
