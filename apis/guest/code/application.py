"""VS Code as the guest knows it. Invariant: a pure declaration."""

from __future__ import annotations

from guest.application import Application

APPLICATION = Application("CodeTools", "VS Code", ("code", "codium"), ("code",), slow=True)
