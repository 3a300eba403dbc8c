"""VS Code's functions as declared; where the editor is not set up, nothing says that it were."""

from pathlib import Path

import pytest

from actors.cluster.checks.apis import command, verdicts
from actors.cluster.runs import doctor
from apis.apps.check.case import tables
from apis.catalogue import TOOLS
from apis.guest.code.start import ids
from tests.apis import declared

CODE = {function.name: function for function in TOOLS["code"]}

# Names, parameters and types as published; "=" where a call may leave it out, and its default.
PUBLISHED = """
launch_vscode(path: string)
compare_files(file1: string, file2: string)
add_folder(folder: string)
goto_file(file_path: string, line: integer = 1, character: integer = 1)
perform_merge(path1: string, path2: string, base: string, result: string)
remove_folder(folder: string)
install_extension(extension_id: string, pre_release: boolean = False)
uninstall_extension(extension_id: string)
list_extensions(show_versions: boolean = False, category: string = None)
update_extensions()
disable_extension(extension_id: string)
toggle_sync(state: string)
"""


def test_names_and_parameters_are_the_published_ones() -> None:
    assert [declared.published(function) for function in CODE.values()] == PUBLISHED.strip().splitlines()
    assert {function.owner for function in CODE.values()} == {"CodeTools"}
    assert CODE["toggle_sync"].params[0].limits == ("on", "off")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("launch_vscode('/etc/../x')", "path: write a folder of your home folder"),
        ("compare_files('../a', '~/b')", "file1: write a file of your home folder"),
        ("compare_files('~/b', '/etc/passwd')", "file2: the file lies outside the home folder"),
        ("compare_files('~/b', '/home')", "file2: the file lies outside the home folder"),
        ("goto_file('~/a.py', 0)", "line: write a whole number from 1"),
        ("toggle_sync('maybe')", "state: write one of 'on', 'off'"),
        ("install_extension('a.b', 'yes')", "pre_release: write True or False"),
        ("update_extensions(1)", "update_extensions"),
        ("install_extension('/etc/x.vsix')", "extension_id: the file lies outside the home folder"),
        ("install_extension('~/x.zip')", "extension_id: the name ends with .vsix"),
        ("disable_extension(' ')", "extension_id: write publisher and name like 'bat.theme'"),
    ],
)
def test_says_which_argument_is_wrong(answer: str, said: str) -> None:
    assert said in declared.refusal(f"CodeTools.{answer}", "code")


def test_the_check_names_extensions_that_there_are() -> None:
    named = {str(case.right["extension_id"]) for case in tables()["code"].cases if "extension_id" in case.right}
    assert named <= set(ids())


def test_the_check_calls_every_function_unavailable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "absent", lambda _: [])
    monkeypatch.setenv("COMPUTERRL_VSCODE", str(tmp_path))
    lacking = command.missing("code")
    assert lacking.startswith("VS Code is not set up: ")
    assert lacking.endswith("make vscode")
    found = verdicts.without("code", verdicts.functions("code"), "unavailable", lacking)
    assert [one.verdict.verdict for one in found] == ["unavailable"] * len(CODE)
    assert verdicts.complaints(found, []) == []


def test_all_published_functions_are_declared() -> None:
    counts = {app: len(functions) for app, functions in TOOLS.items()}
    assert counts == {
        "libreoffice_calc": 27, "libreoffice_impress": 22, "libreoffice_writer": 19, "vlc": 12, "google_chrome": 11,
        "code": 12,
    }  # fmt: skip
    assert sum(counts.values()) == 103
