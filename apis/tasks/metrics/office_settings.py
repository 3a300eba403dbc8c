"""Metrics of the office's own settings, as its registrymodifications.xcu has them.

Invariant: the file is searched for the form in which LibreOffice writes an entry; no XML of the policy's is parsed.
"""

from __future__ import annotations

import html
import re

from apis.tasks.metrics.metric import Declared, Options, Score, Value, is_, text

_ITEM = re.compile(r'<item oor:path="([^"]*)">(.*?)</item>', re.DOTALL)
_PROP = re.compile(r'<prop oor:name="([^"]*)"[^>]*>\s*<value[^>]*>([^<]*)</value>')


def entry(found: str, path: str, name: str) -> str | None:
    """The last value of the property `name` at `path` in a settings file's text; None where it has none."""
    values = [
        html.unescape(value)
        for at, body in _ITEM.findall(found)
        if at == path
        for prop, value in _PROP.findall(body)
        if prop == name
    ]
    return values[-1] if values else None


def check_auto_saving_time(result: Value, expected: Value, _: Options) -> Score:
    """Documents are saved by themselves every `minutes` minutes."""
    wanted = str(expected["minutes"])
    path = "/org.openoffice.Office.Common/Save/Document"
    found = entry(text(result), path, "AutoSaveTimeIntervall")
    off = entry(text(result), path, "AutoSave") == "false"
    return is_(found == wanted and not off, f"every {wanted} minutes", f"off: {off}, minutes: {found}")


def check_presenter_console_disable(result: Value, _expected: Value, _: Options) -> Score:
    """The presenter console is switched off."""
    found = entry(text(result), "/org.openoffice.Office.Impress/Misc/Start", "EnablePresenterScreen")
    return is_(found == "false", "it is off", f"it is {found or 'as at the start'}")


def find_default_font(result: Value, expected: Value, _: Options) -> Score:
    """Writer's default font is `font_name`."""
    wanted = str(expected["font_name"])
    found = entry(text(result), "/org.openoffice.Office.Writer/DefaultFont", "Standard")
    return is_(found == wanted, f"it is {wanted}", f"it is {(found or 'as at the start')[:80]}")


DECLARED = (
    Declared("check_auto_saving_time", check_auto_saving_time, "0 while saving by itself is switched off"),
    Declared("check_presenter_console_disable", check_presenter_console_disable),
    Declared("find_default_font", find_default_font),
)
