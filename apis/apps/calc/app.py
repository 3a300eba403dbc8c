"""LibreOffice Calc as an application. Invariant: a pure declaration."""

from __future__ import annotations

from apis.apps.application import OFFICE, App

APP = App(
    "libreoffice_calc",
    ("libreoffice-calc",),
    "libreoffice calc",
    (*OFFICE, "--calc"),
    opens=("xlsx", "xls", "ods", "csv"),
    program="soffice",
    packages="office-packages.txt",
)
