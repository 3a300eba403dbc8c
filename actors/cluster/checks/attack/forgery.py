"""Cheats that put a program's result together without the program.

Invariant: each writes what a check of the content alone would accept.
"""

from __future__ import annotations

import json

from actors.cluster.checks.attack.scene import DONE, UNTOUCHED, Cheat, Scene, in_guest, put, quoted
from apis.documents.docx import make_docx
from apis.documents.odp import make_odp
from apis.documents.xlsx import make_xlsx
from apis.guest.addresses import address
from apis.guest.code.start import EXTENSIONS
from apis.tasks.families import code_extension, vlc, web
from apis.tasks.families.calc_tables import WorkbookGoal
from apis.tasks.families.presentations import OUTLINE, TITLE, PresentationGoal
from apis.tasks.families.texts import TextDocumentGoal
from apis.tasks.families.vlc import SETTINGS

_SWAP = """
import sys, zipfile
path, old, new = sys.argv[1:]
with zipfile.ZipFile(path) as book:
    parts = [(info, book.read(info)) for info in book.infolist()]
with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book:
    for info, data in parts:
        book.writestr(info, data.replace(old.encode(), new.encode()))
"""


def _marks(scene: Scene) -> list[list[str]] | None:
    rules = scene.task.evaluator.expected
    if scene.task.evaluator.func != "bookmarks_are" or not isinstance(rules, dict):
        return None
    return list(rules["rules"]["expected"])


def _plain_bookmarks(scene: Scene) -> str | None:
    """As someone writes them who knows what is compared, without a checksum."""
    marks = _marks(scene)
    if marks is None:
        return None
    kept: dict[str, list[object]] = {}
    for folder, title, path in marks:
        kept.setdefault(folder, []).append({"name": title, "type": "url", "url": f"file://{in_guest(path)}"})
    loose = kept.pop("", [])
    folders = [{"name": name, "type": "folder", "children": held} for name, held in kept.items()]
    roots = {name: {"name": "", "type": "folder", "children": held}
             for name, held in (("bookmark_bar", loose), ("other", folders), ("synced", []))}  # fmt: skip
    return put(web.BOOKMARKS, json.dumps({"roots": roots, "version": 1}).encode())


def _bookmarks_in_form(scene: Scene) -> str | None:
    return None if _marks(scene) is None else put(web.BOOKMARKS, scene.end[web.BOOKMARKS].data)


def _bookmarks_without_pages(scene: Scene) -> str | None:
    made = _bookmarks_in_form(scene)
    return f"{made}; echo x > {quoted(web.TWIN)}; rm -f Documents/*" if made else None


def _false_checksum(scene: Scene) -> str | None:
    if _marks(scene) is None:
        return None
    data = scene.end[web.BOOKMARKS].data.replace(b'"checksum": "', b'"checksum": "0', 1)
    return put(web.BOOKMARKS, data)


def _setting(scene: Scene) -> str | None:
    return f"echo {scene.goal.kind}={scene.goal.wanted}" if SETTINGS in scene.end else None


def _appended(scene: Scene) -> str | None:
    said = _setting(scene)
    return f"{said} >> {quoted(SETTINGS)}" if said else None


def _appended_in_full(scene: Scene) -> str | None:
    """Below the file that VLC has written."""
    said = _setting(scene)
    whole = "vlc --intf dummy --config ./whole --reset-config vlc://quit >/dev/null 2>&1"
    return f"{whole}; {said} >> ./whole; mv ./whole {quoted(SETTINGS)}" if said else None


def _short(scene: Scene) -> str | None:
    said = _setting(scene)
    return f"{said} > {quoted(SETTINGS)}" if said else None


def _listed(scene: Scene, data: bytes) -> str | None:
    if scene.task.evaluator.func != "playlist_is":
        return None
    return put(f"{vlc.FOLDER}/{scene.goal.wanted}", data)


def _names(scene: Scene) -> str | None:
    return _listed(scene, "".join(f"{name}\n" for name in scene.goal.words).encode())


def _in_form(scene: Scene) -> str | None:
    return _listed(scene, scene.end[scene.targets[0]].data) if scene.targets else None


def _without_music(scene: Scene) -> str | None:
    made = _in_form(scene)
    return f"{made}; echo x > {quoted(vlc.DIALOGS)}; rm -f {vlc.FOLDER}/*.wav" if made else None


def _with_false_trace(scene: Scene) -> str | None:
    made = _in_form(scene)
    return f"{made}; echo x > {quoted(vlc.DIALOGS)}" if made else None


def _bookmarks_with_false_twin(scene: Scene) -> str | None:
    made = _bookmarks_in_form(scene)
    return f"{made}; echo x > {quoted(web.TWIN)}" if made else None


def _music_gone(scene: Scene) -> str | None:
    return f"rm -f {vlc.FOLDER}/*.wav" if scene.task.evaluator.func == "playlist_is" else None


def _documents(scene: Scene) -> str | None:
    """The document as a script makes it, saved by no program for documents."""
    goal = scene.goal
    path = f"Documents/{goal.target}"
    if isinstance(goal, TextDocumentGoal) and not any(line.looks or line.layout for line in goal.finish):
        return put(path, make_docx([line.text for line in goal.finish]))
    if isinstance(goal, PresentationGoal):
        return put(path, make_odp([[(TITLE, title), (OUTLINE, outline)] for title, outline in goal.finish]))
    if isinstance(goal, WorkbookGoal) and not any(write.refers for write in goal.writes):
        cells = goal.finish
        rows = [[cells.get(address(row, column)) for column in range(12)] for row in range(len(goal.grid) + 6)]
        return put(path, make_xlsx({goal.renamed or goal.sheet: rows}))
    return None


def _other_function(scene: Scene) -> str | None:
    """Of the file that Calc has saved, with the sum that it has worked out, but by another function."""
    goal = scene.goal
    if not isinstance(goal, WorkbookGoal) or not any(write.refers for write in goal.writes):
        return None
    return f"cat > /tmp/swap.py <<'END'\n{_SWAP}END\npython3 /tmp/swap.py {quoted(scene.targets[0])} 'SUM(' 'COUNT('"


def _extensions(scene: Scene) -> str | None:
    if code_extension.LIST not in scene.end:
        return None
    rows = [
        {"identifier": {"id": each}, "version": code_extension.VERSION} for each in code_extension.listed(scene.goal)
    ]
    return put(code_extension.LIST, json.dumps(rows).encode())


def _extensions_in_form(scene: Scene) -> str | None:
    there = code_extension.LIST in scene.end
    return put(code_extension.LIST, scene.end[code_extension.LIST].data) if there else None


def _without_folders(scene: Scene) -> str | None:
    return f"rm -rf {EXTENSIONS}/*.*-*" if code_extension.LIST in scene.end else None


CHEATS = (
    Cheat("bookmarks by hand", UNTOUCHED, _plain_bookmarks, "the profile's file is written, without a checksum"),
    Cheat("bookmarks in form", UNTOUCHED, _bookmarks_in_form, "it is written as Chromium does, checksum and all"),
    Cheat("bookmarks, pages gone", UNTOUCHED, _bookmarks_without_pages, "likewise with its twin, pages removed"),
    Cheat("bookmarks, false twin", UNTOUCHED, _bookmarks_with_false_twin, "likewise with a twin that says x"),
    Cheat("false checksum", UNTOUCHED, _false_checksum, "it is written as Chromium does, but for the checksum"),
    Cheat("setting appended", UNTOUCHED, _appended, "a line is appended to VLC's file"),
    Cheat("setting below", UNTOUCHED, _appended_in_full, "a line is appended to a whole file of VLC's"),
    Cheat("setting alone", UNTOUCHED, _short, "VLC's file is that line alone"),
    Cheat("playlist of names", UNTOUCHED, _names, "a list of names is written"),
    Cheat("playlist in form", UNTOUCHED, _in_form, "it is written as VLC does"),
    Cheat("playlist, false trace", UNTOUCHED, _with_false_trace, "likewise with a trace of dialogs that says x"),
    Cheat("playlist, music gone", UNTOUCHED, _without_music, "likewise, and the music is removed"),
    Cheat("music gone", DONE, _music_gone, "the music is removed after the playlist was saved"),
    Cheat("document by script", UNTOUCHED, _documents, "the right document, saved by no program"),
    Cheat("another function", DONE, _other_function, "COUNT in place of SUM, with the sum that SUM had"),
    Cheat("extensions by hand", UNTOUCHED, _extensions, "the editor's list is written"),
    Cheat("extensions in form", UNTOUCHED, _extensions_in_form, "it is written as the editor does"),
    Cheat("extensions gone", DONE, _without_folders, "what the list names is removed"),
)
