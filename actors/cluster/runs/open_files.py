"""How many files this process and its children may have open.

Invariant: the limit only grows, and never beyond what the machine's administrator allows.
"""

from __future__ import annotations

import resource

MOST = 65_536  # where the administrator has set no limit


def raise_limit() -> None:
    """Take all that is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
