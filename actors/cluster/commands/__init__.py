"""The commands of `computerrl`, one module each.

Invariant: importing a command costs nothing but the standard library. What a command works with is imported when it
runs. Every module has `SUMMARY`, `DESCRIPTION`, `arguments(parser)` and `main(args) -> exit status`.
"""

from __future__ import annotations
