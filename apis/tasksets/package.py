"""What a task file may need, and what becomes of each metric, getter and step of the published package.

Package: desktop-env 1.0.2, in the environment that `make osworld-judge` builds. What is known here is not listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec

from apis.tasksets.published_guards import FEATURES

VERSION = "1.0.2"


class LeftMetric(msgspec.Struct, frozen=True):
    """A metric that the package judges, in an evaluation alone."""

    types: tuple[str, ...] = ()  # what a rule's `type` may say; empty where it says nothing
    weak: str = ""  # what else the published one accepts: its guard in `published_guards.py` does not
    # Whether, by its rules, a picture has to be like one that the task starts with. A metric of one feature would take
    # any other picture, too.
    of_start: Callable[[Any], bool] = lambda _: False


def _always(_: Any) -> bool:
    return True


def _unless_cut(rules: Any) -> bool:
    return not rules.get("ignore_transparent")


_TABS, _EMPTIED = ("url",), "a document whose words are gone"
LEFT_METRICS: dict[str, LeftMetric] = {
    "check_auto_saving_time": LeftMetric(weak="the minutes alone, with saving by itself switched off"),
    "check_enabled_experiments": LeftMetric(("names",)),
    "check_font_size": LeftMetric(("value", "range")),
    "check_green_background": LeftMetric(weak="a picture that is green all over", of_start=_always),
    "check_highlighted_words": LeftMetric(weak="other headings; what is yellow by its paragraph"),
    "check_image_file_size": LeftMetric(weak="any small file", of_start=_always),
    "check_image_size": LeftMetric(of_start=_unless_cut),
    "check_italic_font_size_14": LeftMetric(weak="a document without anything in italics"),
    "check_sharper": LeftMetric(of_start=_always),
    "check_slide_orientation_Portrait": LeftMetric(weak="slides of no width, or an empty presentation"),
    "check_textbox_on_leftside": LeftMetric(of_start=_always),
    "check_triangle_position": LeftMetric(weak="a background around the middle", of_start=_always),
    "compare_archive": LeftMetric(weak="an archive that is packed in another way than its name says"),
    "compare_epub": LeftMetric(weak="a book that lacks its last chapters"),
    "compare_htmls": LeftMetric(weak="a page that ends before the other"),
    "compare_image_list": LeftMetric(weak="another picture with the same transparency, or one that is scaled"),
    "compare_init_lines": LeftMetric(weak=_EMPTIED),
    "compare_pdfs": LeftMetric(weak="of pages without a text, other ones"),
    "compare_pptx_files": LeftMetric(weak="other words in a table, a text without its colour, nothing moved"),
    "compare_subscript_contains": LeftMetric(weak="one of the subscripts, or another word"),
    "compare_table": LeftMetric(weak="a sheet that is missing, a split in place of a freeze, NA in a blank cell"),
    "decrease_brightness": LeftMetric(of_start=_always),
    "evaluate_alignment": LeftMetric(weak="nearly any text"),
    "evaluate_colored_words_in_tables": LeftMetric(weak="other words in tables, words that share a colour"),
    "evaluate_strike_through_last_paragraph": LeftMetric(weak="an empty paragraph at the end"),
    "has_page_numbers_in_footers": LeftMetric(weak="any digit in a footer"),
    "increase_saturation": LeftMetric(of_start=_always),
    "is_expected_active_tab_approximate": LeftMetric(_TABS),
    "is_shortcut_on_desktop": LeftMetric(("name", "exec")),
}
LEFT_METRICS |= dict.fromkeys(FEATURES, LeftMetric(weak=_EMPTIED))
LEFT_METRICS |= dict.fromkeys((  # of which there is nothing to say
    "check_accessibility_tree", "check_brightness_decrease_and_structure_sim",
    "check_contrast_increase_and_structure_sim", "check_csv", "check_file_exists_and_structure_sim",
    "check_global_key_play_pause", "check_html_background_image", "check_image_mirror", "check_json_keybindings",
    "check_left_panel", "check_libre_locale", "check_line_number", "check_mp3_meta", "check_no_duplicates",
    "check_palette_and_structure_sim", "check_pdf_pages", "check_presenter_console_disable",
    "check_saturation_increase_and_structure_sim", "check_structure_sim", "check_structure_sim_resized",
    "check_text_enlarged", "compare_answer", "compare_conference_city_in_order", "compare_docx_files",
    "compare_docx_files_and_ignore_new_lines", "compare_docx_lines", "compare_images", "compare_insert_equation",
    "compare_line_spacing", "compare_python_pure_text", "compare_result_files", "compare_terminal_and_txt",
    "compare_time_in_speedtest_results", "compare_unique_train_records", "compare_videos", "compare_zip_files",
    "find_default_font", "fuzzy_match", "fuzzy_place_math", "is_added_to_steam_cart",
    "is_expected_installed_extensions", "is_gold_text_included_in_pdf", "is_in_vm_clickboard",
    "is_included_all_json_objects", "is_vlc_fullscreen", "is_vlc_recordings_folder", "literal_match", "run_sqlite3",
), LeftMetric())  # fmt: skip
REFUSED_METRICS = {
    "check_file_exists": "it looks on the judge's own disk, where no desktop's file lies",
    "check_python_file_by_gold_file": "the published one gives no score",
    "check_python_file_by_test_suite": "it runs what the policy wrote in its own process: a score can be forged",
    "compare_audios": "it decodes sounds by a package that the judge's environment leaves out (librosa)",
    "compare_image_text": "it reads text in pictures by a package that the environment leaves out (easyocr)",
    "compare_pdf_images": "it needs a package that its licence leaves out (PyMuPDF)",
    "compare_triangle_positions": "the published one takes each picture for one triangle as large as itself",
    "get_unique_train_ids": "it is part of another metric and gives no score",
}
ADDRESS = "address"  # of the tab in front
# Getters that the package carries out in its sandbox, and of what: the file under this key, an address, or neither.
LEFT_GETTERS = {
    "active_tab_url_parse": ADDRESS,
    "audio_in_slide": "ppt_file_path",
    "background_image_in_slide": "ppt_file_path",
    "content_from_vm_file": "path",
    "macys_product_url_parse": ADDRESS,
    "rule_relativeTime": "",
    "time_diff_range": "",
    "url_dashPart": ADDRESS,
    "url_path_parse": ADDRESS,
}
# Getters that nothing here carries out: what kind of thing each lacks, and why.
REFUSED_GETTERS: dict[str, tuple[NeedKind, str]] = {
    "active_tab_html_parse": ("network", "the content of a live page"),
    "conference_city_in_order": (
        "getter",
        "conference_city_in_order: the published one reads a file that it has closed",
    ),
    "gotoRecreationPage_and_get_html_content": ("network", "the content of a live page"),
    "googledrive_file": ("account", "a Google Drive"),
    "info_from_website": ("network", "the content of a live page"),
    "number_of_search_results": ("network", "the content of a live page"),
    "page_info": ("network", "the content of a live page"),
    "pdf_from_url": ("network", "a page printed as PDF"),
    "replay": ("getter", "replay: it gives no value"),
    "vm_wallpaper": ("application", "gnome (vm_wallpaper)"),
}
ACCOUNTS = {"googledrive": "a Google Drive", "login": "a login to a web site"}  # steps that need one
# Steps by their types; the package's other steps are those of a task.
REFUSED_STEPS = {
    "act": "it takes actions in a form that no published file has",
    "change_wallpaper": "desktops here have no wallpaper",
    "execute_with_verification": "it repeats a command until another one says that it has worked",
    "proxy": "it sets the machine up for a network, which desktops have none of",
    "replay": "the published one is not written yet",
    "tidy_desktop": "the published one is not written yet",
    "upload_file": "it puts files of the published harness's own disk into the guest",
}


NeedKind = Literal["step", "application", "getter", "metric", "fixture", "network", "root", "account", "judge", "task"]
Verdict = Literal["runnable", "needs_file", "needs_network", "needs_app", "needs_judge", "unsound", "unsupported"]
# The first kind that is lacking decides: what nothing here can give, then what can be installed, reached or fetched.
_DECIDES: tuple[tuple[NeedKind, Verdict], ...] = (
    ("step", "unsupported"),
    ("getter", "unsupported"),
    ("metric", "unsupported"),
    ("root", "unsupported"),
    ("account", "unsupported"),
    ("application", "needs_app"),
    ("network", "needs_network"),
    ("judge", "needs_judge"),
    ("fixture", "needs_file"),
    ("task", "unsound"),
)


class Need(msgspec.Struct, frozen=True, order=True):
    """One thing that a task needs and that is not here."""

    kind: NeedKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Lacking(Exception):  # noqa: N818 - what a task file needs, not an error of the program
    """A step, a getter or a path that can't be had here."""

    def __init__(self, kind: NeedKind, name: str) -> None:
        super().__init__(f"{kind} {name}")
        self.need = Need(kind, name)


def verdict_of(needs: Iterable[Need]) -> Verdict:
    """What a task with these needs is."""
    kinds = {need.kind for need in needs}
    return next((verdict for kind, verdict in _DECIDES if kind in kinds), "runnable")
