"""The families of generated tasks: each module below that declares a `FAMILY` is one.

Invariant: a suite shares out its instances in the order below. A family that the order does not name comes last.
"""

from __future__ import annotations

ORDER = (
    "text_editor",
    "file_manager",
    "editor_find",
    "files_move",
    "terminal_files",
    "terminal_read",
    "note_to_terminal",
    "note_to_files",
    "editor_copy",
    "files_out",
    "terminal_append",
    "calc_cell",
    "calc_lookup",
    "calc_sum",
    "calc_sort",
    "calc_sheet",
    "sheet_from_note",
    "calc_column",
    "writer_text",
    "writer_look",
    "doc_from_note",
    "doc_from_sheet",
    "writer_case",
    "slides_text",
    "slides_copy",
    "slides_order",
    "slides_same",
    "web_bookmark",
    "web_tab",
    "web_note",
    "web_all",
    "vlc_playlist",
    "vlc_setting",
    "vlc_save",
    "code_text",
    "code_extension",
    "code_from_note",
)
