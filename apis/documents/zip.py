"""Archives of offices, and packed extensions of VS Code: the same parts always give the same bytes."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

_DATE = (2020, 1, 1, 0, 0, 0)  # zip has no earlier century to choose from, and no clock may show


def zipped(parts: Mapping[str, str] | Mapping[str, bytes]) -> bytes:
    """An archive of these parts by their paths, in this order."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, text in parts.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.create_system = 3  # else it depends on the machine
            archive.writestr(entry, text)
    return file.getvalue()
