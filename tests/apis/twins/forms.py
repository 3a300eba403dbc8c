"""Twins of rules in the forms that published task files write them, where another form is tried elsewhere."""

from __future__ import annotations

from apis.tasks.verify.verify import FileView
from tests.apis.twins.combined import tables
from tests.apis.twins.table_options import CITIES, cell, fuzzy, held, said
from tests.apis.twins.text_options import filters
from tests.apis.twins.twin import Twin, database, file

BOXES = "mailbox://nobody@Local%20Folders/"
PASSED, FAILED = "Success: a is in d1.\nSuccess: a is in d2.\n", "Success: a is in d1.\nMissing in d2.\n"
PLACE = {"name": "Zürich", "drop": "Zürich", "sort": "PRICE"}
MANIFEST = '{"name": "x-y", "version": "%s", "background": {"scripts": [%s]}, "action": {"icon": "icon.png"}}'
OF_MANIFEST = [
    {"key": ["name"], "method": "eq", "ref": "x-y"}, {"key": ["version"], "method": "eq", "ref": "0.0.1"},
    {"key": ["background", "scripts"], "method": "eq", "ref": ["b.js"]},
    {"key": ["action", "icon"], "method": "eq", "ref": "icon.png"},
]  # fmt: skip
FLAGGED = (
    "select sum(1) > 0 from flags where kind = 58 and value = 1 and message in (select id from messages where"
    " folder = 13);"
)
EITHER = [[name, f"{name} City"] if number % 5 == 0 else name for number, name in enumerate(CITIES)]


def flags(folder: int, value: int, message: int = 1) -> FileView:
    """Thunderbird's index of mails: a message in a folder, and what it is marked with."""
    mails: list[tuple[str | int, ...]] = [("id", "folder"), (1, folder), (2, 99)]
    return database(messages=mails, flags=[("kind", "value", "message"), (58, value, message)])


def moved(action: str, value: str, condition: str) -> str:
    """Thunderbird's filters of mail with one that does this."""
    return filters(condition).replace('action="Mark read"', f'action="{action}"\nactionValue="{value}"')


def filtered(action: str, value: str, condition: str, *wrong: tuple[str, str, str]) -> Twin:
    """A twin of a filter that is looked at by all that it says."""
    rule = {"enabled": "yes", "action": action, "actionValue": value, "condition": [condition]}
    near = [file(moved(*one)) for one in wrong]
    right = file(moved(action, value, condition))
    return Twin("check_thunderbird_filter", {"expect": [rule]}, {}, right, [*near, file('version="9"\n')])


def setting(key: str, value: str, *wrong: str) -> Twin:
    """A twin of a setting of GIMP's."""
    near = [file(f"# GIMP\n({key} {other})\n") for other in wrong]
    rule = {"type:": "key-value", "key": key, "value": value}
    return Twin("check_config_status", rule, {}, file(f"# GIMP\n({key} {value})\n"), [*near, file("# GIMP\n")])


CELLS = [cell(f"B{row}", "approx:0.1", -1.5 * row) for row in (3, 4, 5)]


def booked(*sums: float, names: tuple[str, ...] = ("food", "rent", "gas")) -> FileView:
    """A cash book with these sums in its last rows."""
    return said(["Date", "Sum"], ["Mon", 5], *([name, one] for name, one in zip(names, sums, strict=True)))


TWINS = [
    Twin("exact_match", {"expected": "true\n"}, {}, "true\n", ["true", "True\n", "false\n"]),
    Twin("exact_match", {"expected": "uint32 0\n"}, {}, "uint32 0\n", ["uint32 00\n", "0\n", "uint32 300\n"]),
    Twin("check_include_exclude", {"include": ["File Has Number!"], "exclude": []}, {}, "The File Has Number!\n", [
        "The File has Number!\n", "File Has No Number!\n", "\n",
    ]),
    Twin("check_include_exclude", {"include": [PASSED], "exclude": []}, {}, PASSED, [FAILED, PASSED.strip(), ""]),
    Twin(
        "check_include_exclude", {"include": ["none runs", "killed here"], "exclude": ["still runs", "not killed"]}, {},
        "none runs\nkilled here\n", ["none runs\nnot killed here\n", "none runs\n", "still runs\n"],
    ),
    Twin("check_json", {"expect": OF_MANIFEST}, {}, file(MANIFEST % ("0.0.1", '"b.js"')), [
        file(MANIFEST % ("0.0.10", '"b.js"')), file(MANIFEST % ("0.0.1", '"b.js", "c.js"')), file('{"name": "x-y"}'),
    ]),
    filtered(
        "Forward", "a@b.c", "ALL", ("Forward", "a@b.d", "ALL"), ("Reply", "a@b.c", "ALL"),
        ("Forward", "a@b.c", "AND (to,is,x)"),
    ),
    filtered(
        "Move to folder", f"{BOXES}Sales", "AND (subject,contains,off)",
        ("Move to folder", f"{BOXES}Sale", "AND (subject,contains,off)"),
        ("Copy to folder", f"{BOXES}Sales", "AND (subject,contains,off)"),
        ("Move to folder", f"{BOXES}Sales", "AND (subject,is,off)"),
    ),
    setting("undo-levels", "100", "10", "1000"),
    setting("layer-new-name", '"Square"', '"square"', "Square"),
    Twin("compare_config", {"expected": "project"}, {}, file("project"), [file("projects"), file("Project"), file("")]),
    Twin(
        "check_direct_json_object", {"expected": PLACE}, {}, dict(PLACE),
        [{**PLACE, "name": "Zurich"}, {**PLACE, "sort": "price"}, {"name": "Zürich"}, {}],
    ),
    Twin("run_sqlite3", {"sql": FLAGGED}, {}, flags(13, 1), [flags(14, 1), flags(13, 0), flags(13, 1, 2)]),
    Twin(
        "check_list", {"expect": ["歡迎.*\\.eml", "A mail.*\\.eml"]}, {}, "歡迎 2020.eml\nA mail.eml\n",
        ["歡迎 2020.eml\n", "歡.eml\nA mail.eml\n", ""],
    ),
    Twin(
        "is_expected_url_pattern_match", {"expected": ["forms\\?title=&id=431"]}, {},
        {"url": "https://a.org/forms?title=&id=431"},
        [{"url": "https://a.org/forms?title=&id=43"}, {"url": "https://a.org/form?title=&id=431"}, {"url": ""}],
    ),
    Twin(
        "is_expected_tabs", {"type": "url", "urls": ["https://a.com/", "https://s.b.com/", "https://c.com/"]}, {},
        [{"url": f"https://{host}.com/"} for host in ("c", "a", "s.b")],
        [
            [{"url": f"https://{host}.com/"} for host in ("c", "a", "b")],
            [{"url": f"https://{host}.com/"} for host in ("c", "a", "s.b", "d")], [{"url": "https://a.com/"}],
        ],
    ),
    Twin(
        "compare_conference_city_in_order", {"expected": EITHER}, {},
        held(*(name if isinstance(name, str) else name[1] for name in EITHER)),
        [held(*CITIES[:20], "Zoo"), held(CITIES[1], CITIES[0], *CITIES[2:]), said(["a"])],
    ),
    tables(
        booked(-4.5, -6, -7.5),
        [fuzzy({"range": ["A1:A2", "B1:B2"], "type": "exact_match"}),
         fuzzy({"range": ["A3:A5"], "type": "exact_match", "ignore_case": True}), *CELLS],
        booked(-4.45, -6.05, -7.5, names=("Food", "RENT", "gas")), booked(-4.5, -6, -7.7),
        booked(-4.5, -6, -7.5, names=("food", "rents", "gas")), booked(4.5, 6, 7.5), said(["Date", "Sum"], ["Mon", 5]),
    ),
]  # fmt: skip
