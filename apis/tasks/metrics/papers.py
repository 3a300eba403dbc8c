"""Metrics of PDF files and of archives.

Invariant: what the policy wrote was unpacked elsewhere, in a process of its own. Here are texts, digests and bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

from apis.tasks.metrics import rules
from apis.tasks.metrics.documents import compare_docx_files
from apis.tasks.metrics.files import compare_csv, compare_text_file
from apis.tasks.metrics.metric import (
    SOLVED,
    Declared,
    Metric,
    Options,
    Score,
    UnreadableResult,
    Value,
    document,
    gold,
    is_,
)
from apis.tasks.metrics.pictures import compare_images
from apis.tasks.metrics.slides import compare_pptx_files
from apis.tasks.metrics.tables import compare_table
from apis.tasks.verify.paper import PackedFile, PackedFiles, Pdf
from apis.tasks.verify.verify import FileView

PDF, ARCHIVE = "pdf", "archive"
TEXT_MOST = 1 << 17  # characters that are compared loosely
SAME_IN_ZIP = 0.95  # from where on a PDF in a zip counts as the one that is expected
_RELATIONS = {
    "eq": lambda there, ref: there == ref,
    "ne": lambda there, ref: there != ref,
    "lt": lambda there, ref: there < ref,
    "le": lambda there, ref: there <= ref,
    "gt": lambda there, ref: there > ref,
    "ge": lambda there, ref: there >= ref,
}


def check_pdf_pages(result: Value, expected: Value, _: Options) -> Score:
    """The number of pages stands in the `relation` to `ref_value`."""
    pages = len(document(result, PDF).pages)
    return is_(_RELATIONS[expected["relation"]](pages, expected["ref_value"]), f"{pages} pages", f"{pages} pages")


def _alike(one: Pdf, other: Pdf) -> float:
    """How alike the texts are; without any text whether both draw the same."""
    if not one.text and not other.text:
        return float([page.drawn for page in one.pages] == [page.drawn for page in other.pages])
    return rules.likeness(one.text, other.text, TEXT_MOST)


def _pdf(value: Value) -> Pdf:
    """A PDF; of a fixture's it is the task's fault where it is none."""
    found: Pdf = gold(value, PDF) if isinstance(value, FileView) and value.of_task else document(value, PDF)
    return found


def compare_pdfs(result: Value, expected: Value, _: Options) -> Score:
    """How alike the texts of both are; of several the mean, by the number of those that are expected."""
    there, wanted = ([value] if not isinstance(value, list) else value for value in (result, expected))
    if len(there) != len(wanted):
        return Score(0.0, f"there are {len(there)} PDFs and not {len(wanted)}")
    total, trouble = 0.0, ""
    for pair in zip(there, wanted, strict=True):
        pdfs = []
        for one in pair:
            try:
                pdfs.append(_pdf(one))
            except UnreadableResult as error:
                trouble = str(error)
        total += _alike(*pdfs) if len(pdfs) == len(pair) else 0.0
    score = total / len(wanted)
    return Score(score, f"they are alike to {score:.3f}{trouble and f'; {trouble}'}")


# What the files of an archive may be, by the option `file_type`.
_TYPES: Mapping[str, Metric] = {
    "text": compare_text_file,
    "pdf": compare_pdfs,
    "docx": compare_docx_files,
    "ppt": compare_pptx_files,
    "image": compare_images,
    "csv": compare_csv,
    "table": compare_table,
}


def _view(file: PackedFile, *, of_task: bool) -> FileView:
    """A file of an archive, as a metric is given it."""
    for kind in ("pdf", "picture"):
        if found := getattr(file, kind):
            return FileView(kind, data=file.data, **{kind: found})
    return FileView("file", data=file.data, of_task=of_task)


def _below(found: PackedFiles, folder: str) -> dict[str, PackedFile | None]:
    """What lies in `folder` by name, of a folder None."""
    start = f"{folder}/" if (folder := folder.strip("/").removeprefix("./")) else ""
    below = {path.removeprefix(start): file for path, file in found.files.items() if path.startswith(start)}
    inner = {path.removeprefix(start) for path in found.folders if path.startswith(start)} - {""}
    inner |= {name for name in below if "/" in name}
    return {
        **dict.fromkeys(name.partition("/")[0] for name in inner),
        **{n: f for n, f in below.items() if "/" not in n},
    }


def compare_archive(result: Value, expected: Value, options: Options) -> Score:
    """The mean of what the metric of `file_type` gives the files at `file_path`.

    0 where both archives are not of one form or do not hold the same names there.
    """
    right: PackedFiles = gold(expected, ARCHIVE)
    found: PackedFiles = document(result, ARCHIVE)
    there, wanted = (_below(one, str(options.get("file_path", ""))) for one in (found, right))
    if not wanted or None in wanted.values():
        raise LookupError("what is expected holds no files there, or folders")
    if found.form != right.form:
        return Score(0.0, f"it is {found.form} and not {right.form}")
    if sorted(there) != sorted(wanted):
        return Score(0.0, "it holds other names")
    metric = _TYPES[str(options.get("file_type", "text"))]
    inner = {key: value for key, value in options.items() if key not in ("file_path", "file_type")}
    total, lowest = 0.0, Score(SOLVED, "its files agree")
    for name, file in wanted.items():
        mine = there[name]
        if file is None or mine is None:
            return Score(0.0, f"{name[:60]!r} is a folder")
        try:
            one = metric(_view(mine, of_task=False), _view(file, of_task=True), inner)
        except UnreadableResult as error:
            one = Score(0.0, mine.refusal or str(error))
        total += one.value
        lowest = min(lowest, Score(one.value, f"{name[:60]!r}: {one.reason}"), key=lambda score: score.value)
    return Score(total / len(wanted), lowest.reason)


def compare_zip_files(result: Value, expected: Value, _: Options) -> Score:
    """Both zip archives hold the same files; PDFs whose texts are alike to `SAME_IN_ZIP` count as the same."""
    wanted: PackedFiles = gold(expected, ARCHIVE)
    there: PackedFiles = document(result, ARCHIVE)
    if there.form != "zip" or there.files.keys() != wanted.files.keys():
        return Score(0.0, "it holds other files" if there.form == "zip" else f"it is {there.form} and no zip")
    for name, right in wanted.files.items():
        mine = there.files[name]
        both = mine.pdf is not None and right.pdf is not None
        alike = _alike(mine.pdf, right.pdf) >= SAME_IN_ZIP if mine.pdf and right.pdf and both else False
        if mine.data != right.data and not alike:
            return Score(0.0, f"{name[:60]!r} is another")
    return Score(SOLVED, "it holds what it should")


def _lacks(options: Options) -> str:
    kind = str(options.get("file_type", "text"))
    return "" if kind in _TYPES else f"file_type {kind}"


DECLARED = (
    Declared("check_pdf_pages", check_pdf_pages, reads=PDF),
    Declared(
        "compare_pdfs",
        compare_pdfs,
        "without any text both have to draw the same; both sides read texts by pypdf",
        reads=PDF,
    ),
    Declared(
        "compare_archive",
        compare_archive,
        "a tar has to be packed as the expected one is; without any text PDFs have to draw the same",
        reads=ARCHIVE,
        lacks=_lacks,
    ),
    Declared("compare_zip_files", compare_zip_files, reads=ARCHIVE),
)
