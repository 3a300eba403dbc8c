"""What may change in a HOME: the comparison is exact, rules reach what they name and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis.tasks import programs
from apis.tasks import registry as tasks
from apis.tasks.families import vlc
from apis.tasks.family import at_start, reader, rules_of
from apis.tasks.verify.allowed import CHANGE, CREATE, REMOVE, May, collateral
from apis.tasks.verify.manifest import Deed, Entry, FileChange, Manifest, changes
from apis.tasks.verify.verify import OFFICE, ComparedDocument, FileView, digest_of, wanted

NAMES = st.sampled_from(["a", "b.txt", ".c", "d e", "Documents", "x\n"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
ENTRIES = st.one_of(
    st.builds(Entry, st.just("file"), st.integers(0, 3), st.sampled_from([0o644, 0]), st.sampled_from(["m", "n", "o"])),
    st.builds(Entry, st.just("folder"), st.just(0), st.sampled_from([0o755, 0o700])),
    st.builds(Entry, st.just("link"), st.just(0), st.just(0o777), st.sampled_from(["a", "/etc/passwd"])),
    st.builds(Entry, st.sampled_from(["other", "locked"])),
)
MANIFESTS = st.builds(Manifest, st.dictionaries(PATHS, ENTRIES, max_size=8))


def file(text: str, mode: int = 0o644) -> Entry:
    return Entry("file", len(text), mode, digest_of(text.encode()))


def home(files: dict[str, str]) -> Manifest:
    """A HOME with these files, and the folders above them."""
    entries = {path: file(text) for path, text in files.items()}
    for path in files:
        parts = path.split("/")
        entries |= {"/".join(parts[:depth]): Entry("folder", 0, 0o755) for depth in range(1, len(parts))}
    return Manifest(entries)


@pytest.mark.slow
@given(MANIFESTS, MANIFESTS)
def test_without_rules_every_difference_is_named_and_nothing_else(before: Manifest, after: Manifest) -> None:
    found = list(changes(before, after))
    assert all(one.deed != other.deed for one, other in pairwise(found) if one.path == other.path)
    paths = before.entries.keys() | after.entries.keys()
    assert {change.path for change in found} == {p for p in paths if before.entries.get(p) != after.entries.get(p)}
    assert bool(collateral(before, after, (), ())) == bool(found)
    assert collateral(before, before, (), ()) == ""


@pytest.mark.slow
@given(MANIFESTS, MANIFESTS, PATHS)
def test_a_rule_for_one_path_excuses_that_path_alone(before: Manifest, after: Manifest, path: str) -> None:
    rule = May(path, (CREATE, CHANGE, REMOVE))
    others = [change for change in changes(before, after) if change.path != path]
    told = collateral(before, after, (rule,), ())
    assert told or not [change for change in others if change.after is None or change.after.kind != "folder"]
    if not others and not {"link", "other", "locked"} & {
        entry.kind for m in (before, after) for p, entry in m.entries.items() if p == path
    }:
        excused = all(change.deed in (CREATE, CHANGE, REMOVE) for change in changes(before, after))
        assert (told == "") == excused


@pytest.mark.slow
@given(MANIFESTS, MANIFESTS)
def test_a_home_that_was_not_looked_at_is_not_as_it_was(before: Manifest, after: Manifest) -> None:
    assert "HOME" in collateral(before, Manifest(after.entries, "more paths than are looked at"), (May("**", ()),), ())


@pytest.mark.parametrize(
    ("paths", "in_it", "not_in_it"),
    [
        (".cache/x/**", [".cache/x", ".cache/x/a", ".cache/x/a/b"], [".cache/xy", ".cache", "a/.cache/x/a"]),
        ("**/LOG", ["LOG", "a/LOG", "a/b/LOG"], ["LOG.old", "a/XLOG"]),
        ("**/.~lock.*#", [".~lock.a#", "a/.~lock.b.c#"], ["a/.~lock.b/c#", ".~lock.a"]),
        ("a.b", ["a.b"], ["axb", "a.b/c"]),
    ],
)
def test_rules_reach_what_they_say(paths: str, in_it: list[str], not_in_it: list[str]) -> None:
    may = (May(paths, (CREATE,)),)
    for path in in_it:
        assert collateral(Manifest(), Manifest({path: file("x")}), may, ()) == "", path
    for path in not_in_it:
        assert collateral(Manifest(), Manifest({path: file("x")}), may, ()), path


def test_rules_do_not_cover_what_no_program_does() -> None:
    before = Manifest({"p/a": file("text"), "p/b": file("text"), "p/keep": file("more")})
    rules = (May("p/**", (CREATE, CHANGE)), May("p/b", (REMOVE,), loosely=True), May("p/log", (CHANGE,), loosely=True))
    for deed, entry in (
        (Deed.EMPTIED, Entry("file", 0, 0o644, "")),
        (Deed.LOCKED, file("text", 0)),
        (Deed.LOCKED, Entry("locked", 4, 0)),
        (Deed.REPLACED, Entry("link", 0, 0o777, "b")),
        (Deed.REPLACED, Entry("folder", 0, 0o755)),
    ):
        told = collateral(before, Manifest(before.entries | {"p/a": entry}), (), rules)
        assert told == f"beside what was asked: p/a was {deed}"
    gone = Manifest({path: entry for path, entry in before.entries.items() if path != "p/a"})
    assert collateral(before, gone, (), rules) == "beside what was asked: p/a was removed"
    assert collateral(before, Manifest(before.entries | {"p/a": file("other")}), (), rules) == ""


def test_the_list_of_recent_files_may_lose_permissions_as_gtk_takes_them_and_not_become_unreadable() -> None:
    def home(kind: str, mode: int) -> Manifest:
        return Manifest(entries={".local/share/recently-used.xbel": Entry(kind, 9, mode, "m")})

    before = home("file", 0o644)  # seen right after it was put in place
    assert collateral(before, home("file", 0o600), (), programs.DESKTOP) == ""
    assert "locked up" in collateral(before, home("locked", 0), (), programs.DESKTOP)


@pytest.mark.parametrize("mode", [0o777, 0o4755, 0o2644, 0o1644, 0o666, 0o600, 0o400, 0o755])
def test_who_may_change_a_file_may_not_give_it_other_permissions(mode: int) -> None:
    before = Manifest({"a": file("text")})
    own = (May("a", (CREATE, CHANGE)), May("b", (CREATE, CHANGE)))
    assert collateral(before, Manifest({"a": file("other")}), own, ()) == ""
    assert collateral(before, Manifest({"a": file("other", mode)}), own, ())
    assert collateral(before, Manifest(before.entries | {"b": file("new")}), own, ()) == ""
    assert bool(collateral(before, Manifest(before.entries | {"b": file("new", mode)}), own, ())) == (mode != 0o600)


@pytest.mark.parametrize("more", ["2 names", "attributes ab", "owner 1 1", "holds 0"])
def test_no_rule_gives_attributes_or_lets_what_is_sought_lie_anywhere(more: str) -> None:
    before, rule = Manifest({"p/a": file("text")}), May("p/**", (CREATE, CHANGE, REMOVE), loosely=True)
    for path in ("p/a", "p/b"):
        marked = msgspec.structs.replace(file("other"), more=more)
        told = collateral(before, Manifest(before.entries | {path: marked}), (), (rule,))
        assert path in told
        assert ("to be gone" in told) == more.startswith("holds")


def test_home_itself_is_an_entry() -> None:
    before, after = (Manifest({"": Entry("folder", 0, mode)}) for mode in (0o700, 0o777))
    assert collateral(before, after, (), programs.RULES) == "beside what was asked: HOME itself was opened to others"


def test_programs_may_not_hoard_or_lose_what_they_kept() -> None:
    before = Manifest({".config/vlc/vlcrc": Entry("file", 90_000, 0o600, "m")})
    for entries, says in (
        ({".cache/fontconfig/full": Entry("file", 300 << 20, 0o644, "n")}, "grew by 300 MiB"),
        ({f".cache/fontconfig/{n}": Entry("file", 1, 0o644, "n") for n in range(7000)}, "7000 new files"),
        ({".config/vlc/vlcrc": Entry("file", 2, 0o600, "n")}, "next to nothing is left of .config/vlc/vlcrc"),
    ):
        assert says in collateral(before, Manifest(before.entries | entries), (), programs.RULES)


@pytest.mark.parametrize("path", [
    ".config/libreoffice/4/user/Scripts/python/a.py", ".config/libreoffice/4/user/basic/Standard/a.xba",
    ".config/chromium/Default/Extensions/a/manifest.json", ".config/chromium/NativeMessagingHosts/a.json",
    ".local/share/vlc/lua/extensions/a.lua", ".config/GIMP/2.10/plug-ins/a.py", ".config/autostart/a.desktop",
    "Documents/.~lock.a#", "Documents/lu9.tmp",
])  # fmt: skip
def test_what_a_program_would_run_and_loot_under_its_names_is_no_programs_doing(path: str) -> None:
    assert collateral(Manifest(), Manifest({path: file("x")}), (), programs.RULES)


def test_what_a_program_leaves_by_being_started_once_more_is_no_damage() -> None:
    link = Entry("link", 0, 0, "/tmp/pulse-qR3nnMmU")
    path = ".config/pulse/8d9f6e-runtime"
    above = {".config/pulse": Entry("folder", 0, 0o700)}
    assert collateral(Manifest(), Manifest({**above, path: link}), (), programs.RULES) == ""
    note = {"Documents/.~lock.a.docx#": Entry("note", 80, 0o644, "m")}
    assert collateral(Manifest(), Manifest(note), (), programs.RULES) == ""
    away = Manifest({**above, path: msgspec.structs.replace(link, mark="/home/agent/Documents")})
    assert path in collateral(Manifest(), away, (), programs.RULES)


def test_what_was_to_be_removed_must_not_lie_among_programs_files() -> None:
    before = home({"Documents/a.txt": "old\n", "Documents/b.txt": "b\n"})
    own = (May("Documents/a.txt", (REMOVE,)),)
    programs_ = (May(".cache/x/**", (CREATE, CHANGE)),)
    after = home({"Documents/b.txt": "b\n", ".cache/x/y": "old\n"})
    allowed = {".cache": Entry("folder", 0, 0o755)}
    before = Manifest(before.entries | allowed)
    assert "Documents/a.txt lies at .cache/x/y" in collateral(before, after, own, programs_)
    changed = home({"Documents/b.txt": "b\n", ".cache/x/a.txt": "old, and more\n"})
    assert "Documents/a.txt lies at .cache/x/a.txt" in collateral(before, changed, own, programs_)
    honest = home({"Documents/b.txt": "b\n", ".cache/x/y": "new\n"})
    assert collateral(before, honest, own, programs_) == ""


def test_reasons_are_bounded_and_without_control_characters() -> None:
    after = Manifest({f"{n}\n\x1b[2J{'x' * 5000}": file("x") for n in range(100)})
    told = collateral(Manifest(), after, (), ())
    assert len(told) < 600
    assert told.isprintable()
    assert told.endswith("and 97 more")


def test_no_rule_of_programs_reaches_what_people_keep() -> None:
    for path in (
        "Documents/a.txt", "Desktop/a.txt", "Music/a.wav", "a.txt", ".a.txt", ".bashrc", ".cache/a.txt",
        ".local/share/Trash/files/a.txt", ".local/share/a.txt", programs.BOOKMARKS, ".vscode/extensions/a.b-1/x",
        ".config/a.txt", ".config/openbox/rc.xml", "Pictures/lu1.tmp",
    ):  # fmt: skip
        assert collateral(Manifest(), home({path: "x"}), (), programs.RULES), path


@pytest.mark.parametrize("name", sorted(tasks.FAMILIES))
def test_the_wanted_end_passes_and_damage_beside_it_does_not(name: str) -> None:
    split = "train" if tasks.FAMILIES[name].trained else "held-out"
    for number in range(8):
        task = tasks.task(f"{name}/{split}/{number}")
        rules = rules_of(tasks.family(task.id), task)
        start, end = (_manifest(files) for files in (at_start(task), tasks.solved(task.id)))
        goes = {
            path: any(rule.allows(FileChange(path, Deed.REMOVED, entry, None)) for rule in rules)
            for path, entry in start.entries.items()
        }
        kept = {path: entry for path, entry in start.entries.items() if not goes[path] or path in end.entries}
        after = Manifest(kept | end.entries)
        assert collateral(start, after, rules, ()) == ""
        untouched = [
            path for path in after.entries if start.entries.get(path) == after.entries[path] and not goes[path]
        ]
        for path in untouched:
            less = Manifest({p: e for p, e in after.entries.items() if p != path})
            assert collateral(start, less, rules, ()), path
            assert collateral(start, Manifest(after.entries | {path: file("other")}), rules, ()), path


def _manifest(files: dict[str, FileView]) -> Manifest:
    entries = home(dict.fromkeys(files, "")).entries
    for path, view in files.items():
        if view.kind == "folder":
            entries[path] = Entry("folder", 0, 0o755)
        elif view.kind == "file":
            entries[path] = Entry("file", len(view.data), 0o644, digest_of(view.data))
        else:
            entries[path] = Entry("file", 9000, 0o644, repr(view))
    return Manifest(entries)


def _judged(
    task_id: str,
    before: Manifest,
    after: Manifest,
    compared: ComparedDocument | None = None,
    beside: Mapping[str, FileView] = MappingProxyType({}),
) -> str:
    """The verdict's reason, "" for success, on the wanted end; documents are `compared` so."""
    files = {**tasks.solved(task_id), **beside}
    if compared is not None:
        for one in wanted(tasks.task(task_id)):
            if one.as_ == OFFICE:
                files[one.path] = FileView(OFFICE, office=compared)
    verdict = tasks.judged(tasks.task(task_id), reader(files), before, after)
    return "" if verdict.success else verdict.reason


@pytest.mark.parametrize("name", ["calc_sum", "writer_text", "slides_text", "doc_from_sheet"])
def test_a_document_counts_that_the_office_has_saved_or_that_was_there(name: str) -> None:
    task_id = f"{name}/train/1"
    before, after = (_manifest(files) for files in (at_start(tasks.task(task_id)), tasks.solved(task_id)))
    assert _judged(task_id, before, after, ComparedDocument()) == ""
    assert "another word" in _judged(task_id, before, after, ComparedDocument("another word"))
    made = _judged(task_id, before, after, ComparedDocument(unsaved=True))
    assert "it was not saved by LibreOffice" in made
    assert _judged(task_id, after, after, ComparedDocument(unsaved=True)) == ""


def test_what_the_program_leaves_behind_must_be_there() -> None:
    task_id = "vlc_playlist/train/1"
    start = _manifest(at_start(tasks.task(task_id)))
    after = Manifest(start.entries | _manifest(tasks.solved(task_id)).entries)
    left = Manifest(after.entries | {".config": Entry("folder", 0, 0o755), vlc.DIALOGS: file("x")})
    before = Manifest(start.entries | {".config": Entry("folder", 0, 0o755)})
    assert "has not written it" in _judged(task_id, before, after)
    assert "has not written it" in _judged(task_id, left, left)
    assert "has not written it" in _judged(task_id, before, left)
    noted = b"[FileDialog]\nlastVisited=file:///home/agent/Music\nqtVersion=5.15.8\n"
    assert _judged(task_id, before, left, beside={vlc.DIALOGS: FileView("file", noted)}) == ""
