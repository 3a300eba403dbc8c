"""Twins of metrics of words, lists and the office's own settings."""

from __future__ import annotations

from apis.tasks.verify.verify import FileView
from tests.apis.twins.documents import docx, para, stretch
from tests.apis.twins.twin import Twin, file

CENTERED = '<w:pPr><w:jc w:val="center"/></w:pPr>'


def settings(path: str, *values: tuple[str, str]) -> FileView:
    """An office's settings file with these properties at `path`."""
    props = (f'<prop oor:name="{name}" oor:op="fuse"><value>{value}</value></prop>' for name, value in values)
    items = "".join(f'<item oor:path="/org.openoffice.Office.{path}">{prop}</item>' for prop in props)
    return file(f'<oor:items xmlns:oor="http://openoffice.org/2001/registry">{items}</oor:items>')


def _setting(name: str, expected: dict[str, object] | None, path: str, *said: str) -> Twin:
    prop, right, wrong = said
    near = [settings(path, (prop, wrong)), settings("Calc", (prop, right)), settings(path, (f"{prop}2", right))]
    return Twin(name, expected, {}, settings(path, (prop, right)), [*near, settings(path)])


SAVING, MINUTES = "Common/Save/Document", "AutoSaveTimeIntervall"
TWINS = [
    Twin("exact_match", {"expected": "true"}, {}, "true", ["True", "true\n", "false"]),
    Twin("match_in_list", {"expected": ["Bing", "Microsoft Bing"]}, {}, "Bing", ["bing", "Bin", "Google"]),
    Twin("is_in_list", {"expected": "/a"}, {}, ["/b", "/a"], [["/b"], ["/a/"], []]),
    Twin(
        "check_include_exclude",
        {"include": ["done"], "exclude": ["failed"]},
        {},
        "all done\n",
        ["don", "done, failed", "all"],
    ),
    Twin(
        "file_contains",
        {"expected": ["Ping", "Up"]},
        {},
        file("Ping 1\nUp 2"),
        [file("Ping 1\nup 2"), file("Up"), file("")],
    ),
    Twin(
        "is_first_line_centered",
        None,
        {},
        docx(para(CENTERED, stretch("head")), para(stretch("text"))),
        [
            docx(para(CENTERED.replace("center", "right"), stretch("head")), para(stretch("text"))),
            docx(para(stretch("head")), para(CENTERED, stretch("text"))),
            docx(para(stretch("head")), para(stretch("text"))),
        ],
    ),
    Twin(
        "check_auto_saving_time",
        {"minutes": 3},
        {},
        settings(SAVING, (MINUTES, "30"), (MINUTES, "3")),
        [settings(SAVING, (MINUTES, "3"), ("AutoSave", "false")), settings(SAVING, (MINUTES, "33")), settings(SAVING)],
    ),
    _setting("check_auto_saving_time", {"minutes": 3}, SAVING, MINUTES, "3", "30"),
    _setting("check_presenter_console_disable", None, "Impress/Misc/Start", "EnablePresenterScreen", "false", "true"),
    _setting("find_default_font", {"font_name": "A & B"}, "Writer/DefaultFont", "Standard", "A &amp; B", "A"),
]
