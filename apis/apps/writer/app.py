"""LibreOffice Writer as an application. Invariant: a pure declaration."""

from __future__ import annotations

from apis.apps.application import OFFICE, App

APP = App(
    "libreoffice_writer",
    ("libreoffice-writer",),
    "libreoffice writer",
    (*OFFICE, "--writer"),
    opens=("docx", "doc", "odt"),
    program="soffice",
    packages="office-packages.txt",
)
