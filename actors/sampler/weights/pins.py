"""The versions that evaluation rounds need of an engine.

Invariant: an engine that holds one version serves the version that was pinned first. A request for a version that was
unpinned is deferred. No other request is.
"""

from __future__ import annotations

from collections import deque

from actors.sampler.latest import Latest
from runtime.messaging.message import Version

MOST_LET_GO = 64  # versions; what still asks for one ends within seconds


class Pins:
    """Pinned versions and where they lie; `single` for an engine of one version."""

    def __init__(self, held: dict[Version, str], *, single: bool) -> None:
        self.held = held
        self._single = single
        self._let_go: deque[Version] = deque(maxlen=MOST_LET_GO)

    def take(self, version: Version, location: str) -> bool:
        """Pin it; whether that is news."""
        if version in self._let_go:
            self._let_go.remove(version)
        new = self.held.get(version) != location
        self.held[version] = location
        return new

    def drop(self, version: Version) -> bool:
        """Let it go; whether that is news."""
        new = self.held.pop(version, None) is not None
        if self._single and version not in self._let_go:
            self._let_go.append(version)
            new = True
        return new

    def deferred(self, version: Version | None) -> bool:
        """Whether a request for `version` is to come again later."""
        return version in self._let_go

    def wanted(self, latest: Latest) -> Latest:
        """The weights that the engine is to hold, or with several versions to draw from by default."""
        if not self._single or not self.held:
            return latest
        version, location = next(iter(self.held.items()))
        return latest if version == latest.version else Latest(version=version, location=location)
