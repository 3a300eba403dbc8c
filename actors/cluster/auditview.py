"""What `audit` prints.

Invariant: the verdict is bad exactly when a check names something wrong.
"""

from __future__ import annotations

from pathlib import Path

from actors.cluster import runfolder, say
from actors.replay.auditing import audit
from actors.replay.ledgerfile import reading
from runtime.errors import ConfigError, StoreError


def show(path: Path, *, as_json: bool) -> int:
    """Audit the run at `path` and print it; 1 when something is wrong. Raises ConfigError without a ledger."""
    try:
        with reading(path) as ledger:
            checks = audit(ledger, path / "segments")
    except StoreError as error:
        raise ConfigError(str(error)) from None
    wrong = [(check.name, text) for check in checks for text in check.wrong]
    if as_json:
        say.document({"run": str(path), "ok": not wrong, "checks": checks})
        return int(bool(wrong))
    state = runfolder.state(path, runfolder.read_record(path))
    say.line(say.clean(f"{path.name} ({state}): " + (f"{len(wrong)} wrong" if wrong else "adds up")))
    say.table(("CHECK", "LOOKED AT", "WRONG"), [(one.name, one.looked_at, len(one.wrong)) for one in checks])
    for name, text in wrong:
        say.line(say.clean(f"{name}: {text}"))
    return int(bool(wrong))
