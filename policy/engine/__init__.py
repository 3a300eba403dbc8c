"""The embedded inference engine: a small decoder behind SGLang's HTTP contract, in a process of its own.

Invariant: whatever is answered names the weights that every token was drawn from.
"""
