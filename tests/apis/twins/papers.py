"""Twins of metrics of PDF files and of archives."""

from __future__ import annotations

from collections.abc import Sequence

from apis.documents.docx import make_docx
from apis.documents.xlsx import make_xlsx
from apis.documents.zip import zipped
from apis.tasks.verify.verify import FileView
from tests.apis.twins.general import DATA
from tests.apis.twins.made_papers import make_pdf, make_tar
from tests.apis.twins.made_slides import Box, Page, make_pptx
from tests.apis.twins.pictures import GOLD as PICTURE
from tests.apis.twins.pictures import MIRROR
from tests.apis.twins.twin import Twin, file


def pdf(*pages: str, fields: Sequence[str] = (), drawn: str = "") -> FileView:
    """A PDF as `make_pdf` has it."""
    return file(make_pdf(*pages, fields=fields, drawn=drawn))


def named(files: dict[str, bytes]) -> dict[str, bytes]:
    """Files of an archive; their names have "_" before the ending of their kind."""
    return {name.replace("_", "."): data for name, data in files.items()}


def packed(**files: bytes) -> FileView:
    """A tar, packed by gzip, of these files as `named` has them."""
    return file(make_tar(named(files)))


def box(**files: bytes) -> FileView:
    """A zip archive of these files as `named` has them."""
    return file(zipped(named(files)))


def inside(kind: str, ending: str, right: bytes, near: bytes, **more: object) -> Twin:
    """A twin of an archive of two files of one kind."""
    both, half, bad = (
        packed(**{f"a_{ending}": one, f"b_{ending}": two}) for one, two in ((right, right), (right, near), (near, near))
    )
    alone = packed(**{f"a_{ending}": right})
    return Twin("compare_archive", both, {"file_type": kind, **more}, both, [half, alone, bad])


RED, BLUE = ("1 0 0 rg 72 72 99 99 re f", "0 0 1 rg 72 72 99 99 re f")
ONE, TWO = make_pdf("one two three"), make_pdf("four five six")
XZ = file(make_tar({"a.pdf": ONE, "b.pdf": TWO}, "tar.xz"))
GOLD = make_pdf("Tea and milk", "and more of it")
TWINS = [
    Twin(
        "check_pdf_pages", {"relation": "eq", "ref_value": 1}, {}, pdf("one"),
        [pdf("one", "two"), pdf(), pdf("a", "b", "c")],
    ),
    Twin(
        "check_pdf_pages", {"relation": "ge", "ref_value": 2}, {}, pdf("a", "b"),
        [pdf("a"), file(make_pdf("a", "b")[:99]), pdf("a\nb")],
    ),
    Twin(
        "compare_pdfs", file(GOLD), {}, pdf("Tea and milk", "and more of it"),
        [pdf("Tea and milk", "and more of that"), pdf("tea and milk and more of it"), pdf("Tea and milk"), pdf("")],
    ),
    Twin(
        "compare_pdfs", [file(ONE), file(TWO)], {}, [file(ONE), file(TWO)],
        [[file(TWO), file(ONE)], [file(ONE), FileView("missing")], [file(ONE), file(ONE)]],
    ),
    Twin(  # what is filled into a form
        "compare_pdfs", pdf("Name", fields=["Ann Lee", "12"]), {}, pdf("Name", fields=["Ann Lee", "12"]),
        [pdf("Name", fields=["Ann Lee", "13"]), pdf("Name", fields=["Ann Lee"]), pdf("Name")],
    ),
    Twin(
        "compare_pdfs", pdf("", drawn=RED), {}, pdf("", drawn=RED),
        [pdf("", drawn=BLUE), pdf("", "", drawn=RED), pdf("")],
    ),
    Twin(
        "compare_archive", packed(a_pdf=ONE, b_pdf=TWO), {"file_type": "pdf"}, packed(b_pdf=TWO, a_pdf=ONE),
        [
            packed(a_pdf=ONE, b_pdf=ONE), packed(a_pdf=ONE, c_pdf=TWO), XZ,
            packed(a_pdf=ONE, b_pdf=TWO, c_pdf=TWO), packed(a_pdf=ONE),
        ],
    ),
    inside("text", "txt", b"one\n", b"two\n"),
    inside("text", "txt", b"one two\n", b"one\n", ignore_blanks=True),
    inside("docx", "docx", make_docx(["one"]), make_docx(["two"])),
    inside("csv", "csv", b"a,b\n", b"a;b\n"),
    inside("table", "xlsx", make_xlsx({"Sheet1": [["a", 1]]}), make_xlsx({"Sheet1": [["a", 2]]}), rules=[DATA]),
    inside("image", "png", PICTURE.data, MIRROR.data),
    inside("ppt", "pptx", make_pptx(Page([Box(["one"])])), make_pptx(Page([Box(["two"])]))),
    Twin(
        "compare_archive", file(zipped({"in/a.txt": b"one", "b.txt": b"x"})), {"file_path": "in", "file_type": "text"},
        file(zipped({"in/a.txt": b"one", "b.txt": b"y", "c.txt": b""})),
        [
            file(zipped({"in/a.txt": b"two", "b.txt": b"x"})), file(zipped({"a.txt": b"one"})),
            file(zipped({"in/a.txt": b"one", "in/b.txt": b""})), file(zipped({"b.txt": b"x"})),
        ],
    ),
    Twin(
        "compare_zip_files", box(a_pdf=GOLD, b_txt=b"x"), {},
        box(a_pdf=make_pdf("Tea and milk", "and more of it!"), b_txt=b"x"),
        [box(a_pdf=ONE, b_txt=b"x"), box(a_pdf=GOLD, b_txt=b"y"), box(a_pdf=GOLD)],
    ),
]  # fmt: skip
