"""What is told of the editor's window."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import apis.guest
from apis.tasks.families import code_extension


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.syspath_prepend(str(Path(str(apis.guest.__file__)).parent.parent))
    for name in [name for name in sys.modules if name.partition(".")[0] == "guest"]:
        monkeypatch.delitem(sys.modules, name)
    import guest.code.functions  # type: ignore[import-not-found, unused-ignore]

    yield guest.code.functions
    for name in [name for name in sys.modules if name.partition(".")[0] == "guest"]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("there", "shown", "shows", "told"),
    [
        ("", [], True, "is installed"),
        ("", [], False, "has not shown it yet"),
        ("1.0.0", [], False, "is installed"),  # it is switched off
        ("1.0.0", ["a.b"], True, "is installed"),
    ],
)
def test_an_extension_is_waited_for_where_the_window_will_show_it(
    code: Any, monkeypatch: pytest.MonkeyPatch, there: str, shown: list[str], shows: bool, told: str
) -> None:
    kept = [code.Installed("a.b", there, (), False)] if there else []

    def ask(method: str, *_: Any, **__: Any) -> dict[str, Any]:
        if method == "install":
            kept[:] = [code.Installed("a.b", "2.0.0", (), False)]
            shown[:] = ["a.b"] if shows else []
        return {"extensions": list(shown)}

    monkeypatch.setattr(code.code_link, "ask", ask)
    monkeypatch.setattr(code, "installed", lambda: list(kept))
    monkeypatch.setattr(code, "CALL_S", 0.1)
    try:
        answer = code.CodeTools()._install("/x.vsix", "extension_id")
    except code.Refused as refused:
        answer = str(refused)
    assert told in answer


@pytest.mark.parametrize("call", ["install_extension", "update_extensions"])
def test_an_install_that_takes_too_long_is_not_said_to_have_failed(
    code: Any, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def ask(method: str, *_: Any, **__: Any) -> dict[str, Any]:
        if method == "install":
            raise code.code_link.Late("tool_failed", "VS Code does not answer")
        return {"extensions": []}

    theme = code.code_start.OFFERED[0]
    monkeypatch.setattr(code.code_link, "ask", ask)
    monkeypatch.setattr(code, "installed", lambda: [code.Installed(theme.id, "0.9.0", (), False)])
    arguments = {"extension_id": theme.id, "pre_release": False} if call == "install_extension" else {}
    with pytest.raises(code.code_link.Late, match=r"vsix may still come to be installed: VS Code does not") as late:
        getattr(code.CodeTools(), call)(**arguments)
    said = str(late.value)
    assert "not installed" not in said
    assert not any(end in said for ends in code_extension.DONE.values() for end in ends)


def test_a_folder_that_was_deleted_can_still_be_taken_out_of_the_window(
    code: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folders = [f"{tmp_path}/gone", "/etc"]
    asked = []

    def ask(method: str, *_: Any, path: str = "") -> dict[str, Any]:
        if method == "removeFolder":
            asked.append(path)
            folders.remove(path)
        told = {"folders": list(folders), "folderCount": len(folders), "tabs": [], "tabCount": 0}
        return {**told, "born": "1", "done": True, "reloads": False}

    monkeypatch.setattr(code.code_link, "ask", ask)
    (tmp_path / "out").symlink_to("/etc")
    for wrong in ("/etc", "~/out", "~/gone/../../x", "~/" + "a/" * 3000):
        with pytest.raises(code.Refused, match=r"^folder: ") as refused:
            code.CodeTools().remove_folder(folder=wrong)
        assert len(str(refused.value)) < 400
    assert asked == []
    assert code.CodeTools().remove_folder(folder="~/gone").startswith("~/gone is no longer in the window")
    assert asked == [f"{tmp_path}/gone"]
    with pytest.raises(code.Refused, match="there is no folder ~/gone"):
        code.CodeTools().add_folder(folder="~/gone")


@pytest.mark.parametrize(
    ("error", "there", "left"),
    [
        ("the merge editor is gone", "", ""),
        ("the merge editor is gone", "mine", "mine"),  # the user's own file stays
        ("late", "", "old"),  # the merge editor may still open on it
    ],
)
def test_a_merge_that_is_refused_leaves_no_file_behind(
    code: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: str, there: str, left: str
) -> None:
    for name in ("one", "two", "old"):
        (tmp_path / name).write_text(name)
    result = tmp_path / "new"
    if there:
        result.write_text(there)
    seen = []

    def ask(method: str, *_: Any, **__: Any) -> dict[str, Any]:
        if method == "merge":
            seen.append(result.read_text())
            raise (code.code_link.Late if error == "late" else code.Refused)("tool_failed", error)
        return {}

    monkeypatch.setattr(code.code_link, "ask", ask)
    with pytest.raises(code.Refused, match=error):
        code.CodeTools().perform_merge(path1="~/one", path2="~/two", base="~/old", result="~/new")
    assert seen == [there or "old"]
    assert (result.read_text() if result.exists() else "") == left


def test_without_a_window_nothing_is_written_for_a_merge(code: Any, tmp_path: Path) -> None:
    for name in ("one", "two", "old"):
        (tmp_path / name).write_text(name)
    with pytest.raises(code.Refused, match="VS Code is not open"):
        code.CodeTools().perform_merge(path1="~/one", path2="~/two", base="~/old", result="~/new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("name", "argument", "more"),
    [("goto_file", "file_path", {"line": 1, "character": 1}), ("launch_vscode", "path", {})],
)
def test_a_file_that_is_no_text_is_refused_by_the_arguments_name(
    code: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, argument: str, more: dict[str, int]
) -> None:
    (tmp_path / "a.bin").write_bytes(b"\0")
    said = ["cannot open vscode-remote://remote/a. Detail: File seems to be binary and cannot be opened as text"]

    def ask(method: str, *_: Any, **__: Any) -> dict[str, Any]:
        assert method == "openFile"
        raise code.Refused("tool_failed", f"VS Code says: {said[0]}")

    monkeypatch.setattr(code.code_link, "ask", ask)
    monkeypatch.setattr(code.code_link, "running", lambda: True)
    with pytest.raises(code.Refused, match=rf"^{argument}: ~/a\.bin can't be shown as text$"):
        getattr(code.CodeTools(), name)(**{argument: "~/a.bin"}, **more)
    said[0] = "cannot open it. Detail: it is gone"
    with pytest.raises(code.Refused, match=r"^VS Code says: cannot open it\. Detail: it is gone$"):
        getattr(code.CodeTools(), name)(**{argument: "~/a.bin"}, **more)
