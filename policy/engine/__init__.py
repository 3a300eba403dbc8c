"""The embedded inference engine: a small decoder behind SGLang's HTTP contract, in a process of its own."""
