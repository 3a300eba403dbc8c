"""LibreOffice Calc as the guest knows it. Invariant: a pure declaration."""

from __future__ import annotations

from guest.application import Application

APPLICATION = Application("CalcTools", "Calc", ("libreoffice-calc",), office=True)
