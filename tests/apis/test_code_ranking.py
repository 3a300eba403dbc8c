"""What a small model is shown of VS Code."""

from apis.apps.code import APPLICATION_MENU, ranked
from apis.observation import Element


def thing(tag: str, name: str) -> Element:
    return Element(tag, name, "", 0, 0, 10, 10, ("sen",))


def test_menu_text_and_files_come_first_and_nothing_is_said_twice() -> None:
    seen = [
        thing("document-web", "a.txt - VS Code"), thing("push-button", "a.txt - VS Code"), thing("section", "LF"),
        thing("menu-item", APPLICATION_MENU), thing("page-tab", "a.txt"), thing("tree-item", "a.txt"),
        thing("static", "a.txt"), thing("entry", "a.txt"), thing("list-item", "fox, 1.0.0"),
        thing("menu-item", "Rename... F2"), thing("static", "F2"), thing("static", "Completed"),
    ]  # fmt: skip
    assert [f"{element.tag} {element.name}" for element in ranked(seen)] == [
        "menu-item Rename... F2", "entry a.txt", "list-item fox, 1.0.0", "tree-item a.txt", "page-tab a.txt",
        "push-button a.txt - VS Code", "menu-item Application Menu", "section LF", "static Completed",
    ]  # fmt: skip
