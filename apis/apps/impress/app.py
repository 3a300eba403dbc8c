"""LibreOffice Impress as an application. Invariant: a pure declaration."""

from __future__ import annotations

from apis.apps.application import OFFICE, App

APP = App(
    "libreoffice_impress",
    ("libreoffice-impress",),
    "libreoffice impress",
    (*OFFICE, "--impress"),
    opens=("pptx", "ppt", "odp"),
    program="soffice",
    packages="office-packages.txt",
)
