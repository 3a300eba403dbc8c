"""The functions of LibreOffice Impress, as the agent calls them.

Invariant: `ImpressTools` has the public methods that `apis/apps/impress/functions.py` declares, with the same
parameters. A call gets the presentation in front, and its answer is one bounded text.
"""

from __future__ import annotations

from typing import Any

from guest.impress.base import Show
from guest.impress.files import Files
from guest.impress.slides import Slides
from guest.impress.text import Texts
from guest.office.base import INFO_CHARS
from guest.office.office import document

SERVICE = "com.sun.star.presentation.PresentationDocument"


class ImpressTools(Texts, Slides, Files):
    """All of them."""


def tools(desktop: Any, current: Any) -> ImpressTools:
    """The functions on the presentation in front. Raises Refused when there is none."""
    return ImpressTools(document(desktop, current, SERVICE, "presentation"))


def info(desktop: Any, current: Any) -> str:
    """What the presentation in front holds now, unsaved edits included."""
    return Show(document(desktop, current, SERVICE, "presentation"))._about(INFO_CHARS)
