"""Functions that a model has written: each runs in a worker, a process of its own that its caller can kill."""
