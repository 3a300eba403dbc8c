"""A document of LibreOffice over the session's own connection: what generated functions are given."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from guest import Refused
from guest.office.office import CONNECT_S, Office, document


def _reached() -> Any:
    """What knows the office's documents. Raises ValueError."""
    try:
        there = Office().reached(CONNECT_S)
    except Refused as error:
        raise ValueError(str(error)) from None
    return there.ServiceManager.createInstanceWithContext("com.sun.star.frame.Desktop", there)


class App:
    """The office, and its newest document of a kind like `com.sun.star.sheet.SpreadsheetDocument`."""

    def __init__(self, service: str) -> None:
        self._service = service
        self.home = Path(os.environ["HOME"])
        self._office = _reached()  # one that is still starting is waited for now: functions see no processes

    def document(self) -> Any:
        """The document in front, or the newest. Raises ValueError where none is open."""
        self._office = self._office or _reached()
        try:
            return document(self._office, self._office.getCurrentComponent(), self._service, "document")
        except Exception as error:  # noqa: BLE001 - of a bridge that has ended, whichever it raises
            self._office = None  # another office has been started since
            raise ValueError(f"the document can't be reached: {error}") from None

    def view(self) -> Any:
        """What shows the document."""
        return self.document().getCurrentController()

    def sheet(self) -> Any:
        """The sheet in front."""
        return self.view().getActiveSheet()

    def used(self) -> Any:
        """The cells of that sheet from A1 to the last that is used."""
        cursor = self.sheet().createCursor()
        cursor.gotoEndOfUsedArea(False)
        end = cursor.getRangeAddress()
        return self.sheet().getCellRangeByPosition(0, 0, end.EndColumn, end.EndRow)

    def struct(self, name: str, **fields: Any) -> Any:
        """A struct of the office's by its full name."""
        import uno

        made = uno.createUnoStruct(name)
        for field, value in fields.items():
            setattr(made, field, value)
        return made
