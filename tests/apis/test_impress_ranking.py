"""What a small model is shown of a presentation."""

from apis.apps.impress import PARAGRAPHS, ranked
from apis.observation import Element


def thing(tag: str, name: str, *states: str) -> Element:
    return Element(tag, name, "", 0, 0, 10, 10, ("sen", *states))


VIEW = [
    thing("menu", "File"), thing("menu-item", "Slide Down"), thing("document-presentation", "talk"),
    thing("paragraph", "one"), thing("push-button", "Ellipse"), thing("push-button", "Save", "bar"),
    thing("push-button", "Bold", "bar"), thing("list-item", "Blank Slide", "bar"), thing("toggle-button", "Shadow"),
    thing("push-button", "Delete Slide"), thing("paragraph", "two"),
]  # fmt: skip


def test_texts_come_first_and_of_the_tool_bars_a_few_buttons_are_left() -> None:
    assert [element.name for element in ranked(VIEW)] == [
        "Slide Down", "one", "two", "Save", "Delete Slide", "File",
    ]  # fmt: skip


def test_of_very_many_texts_the_first_are_kept() -> None:
    many = [thing("document-presentation", "talk"), *(thing("paragraph", str(n)) for n in range(99))]
    assert [element.name for element in ranked(many)] == [str(n) for n in range(PARAGRAPHS)]


def test_a_dialog_is_shown_as_it_is() -> None:
    dialog = [thing("push-button", "Help"), thing("toggle-button", "Color"), thing("push-button", "OK")]
    assert ranked(dialog) == dialog
