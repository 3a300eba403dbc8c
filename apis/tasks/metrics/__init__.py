"""Metrics of published task files: each module below declares some as `DECLARED`, by their published names."""

from __future__ import annotations

ORDER = ("text", "settings", "browser", "office_world")  # in which they are listed
