"""What `audit` prints.

Invariant: the verdict is bad exactly when a check names something wrong.
"""

from __future__ import annotations

from pathlib import Path

from actors.cluster import output
from actors.cluster.runs import run_folder
from actors.replay.database.auditing import audit
from actors.replay.database.ledger_file import reading
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
        output.document({"run": str(path), "ok": not wrong, "checks": checks})
        return int(bool(wrong))
    state = run_folder.state(path, run_folder.read_record(path))
    output.line(output.clean(f"{path.name} ({state}): " + (f"{len(wrong)} wrong" if wrong else "adds up")))
    output.table(("CHECK", "LOOKED AT", "WRONG"), [(one.name, one.looked_at, len(one.wrong)) for one in checks])
    for name, text in wrong:
        output.line(output.clean(f"{name}: {text}"))
    return int(bool(wrong))
