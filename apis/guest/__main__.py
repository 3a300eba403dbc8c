"""Entry of both guest processes: `python3 -I FOLDER session|agent ...`.

Invariant: modules come from this folder and the system alone, whatever lies in the current folder or the environment.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> int:
    """Run the part named by the first argument; the rest are its own."""
    here = Path(__file__).resolve().parent
    sys.path[0] = str(here.parent)  # the folder's parent, so that `guest` is a package
    part, *rest = sys.argv[1:]
    if part == "session":
        from guest import session

        return session.main(rest)
    from guest import agent

    return agent.main(rest)


if __name__ == "__main__":
    sys.exit(main())
