"""Metrics of published task files: each module below declares some as `DECLARED`, by their published names.

Invariant: the order below decides nothing but the order in which they are listed.
"""

from __future__ import annotations

ORDER = (
    "text",
    "files",
    "settings",
    "urls",
    "tables",
    "documents",
    "slides",
    "databases",
    "pictures",
    "papers",
    "office_world",
)
