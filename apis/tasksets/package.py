"""What the published package has, and what becomes of each here: one table of its metrics, getters and steps.

Invariant: each name of the package is known here, left to the package, or refused with a reason, and is one of these
alone. What is known is not listed: `METRICS`, `getters.KNOWN` and the steps of a task say it.

Package: desktop-env 1.0.2, in the environment that `make osworld-judge` builds.
"""

from __future__ import annotations

import msgspec

from apis.tasksets.needs import NeedKind

VERSION = "1.0.2"


class LeftMetric(msgspec.Struct, frozen=True):
    """A metric that the package judges, in an evaluation alone."""

    types: tuple[str, ...] = ()  # what a rule's `type` may say; empty where it says nothing
    weak: str = ""  # what else gets its full score
    of_start: bool = False  # whether a picture has to be like one that the task starts with, as `Declared` has it


_TABS, _EMPTIED = ("url",), "a document that was emptied passes, too"
LEFT_METRICS: dict[str, LeftMetric] = {
    "check_accessibility_tree": LeftMetric(),
    "check_brightness_decrease_and_structure_sim": LeftMetric(),
    "check_contrast_increase_and_structure_sim": LeftMetric(),
    "check_csv": LeftMetric(),
    "check_enabled_experiments": LeftMetric(("names",)),
    "check_file_exists_and_structure_sim": LeftMetric(),
    "check_font_size": LeftMetric(("value", "range")),
    "check_global_key_play_pause": LeftMetric(),
    "check_green_background": LeftMetric(weak="nothing but this is looked at, so another picture passes, too"),
    "check_html_background_image": LeftMetric(),
    "check_image_mirror": LeftMetric(),
    "check_image_stretch_and_center": LeftMetric(),
    "check_italic_font_size_14": LeftMetric(weak="a document without anything in italics passes, too"),
    "check_json_keybindings": LeftMetric(),
    "check_libre_locale": LeftMetric(),
    "check_line_number": LeftMetric(),
    "check_mp3_meta": LeftMetric(),
    "check_no_duplicates": LeftMetric(),
    "check_page_number_colors": LeftMetric(),
    "check_palette_and_structure_sim": LeftMetric(),
    "check_saturation_increase_and_structure_sim": LeftMetric(),
    "check_sharper": LeftMetric(of_start=True),
    "check_slide_numbers_color": LeftMetric(),
    "check_strikethrough": LeftMetric(),
    "check_structure_sim": LeftMetric(),
    "check_structure_sim_resized": LeftMetric(),
    "check_tabstops": LeftMetric(),
    "check_text_enlarged": LeftMetric(),
    "check_transition": LeftMetric(),
    "compare_answer": LeftMetric(),
    "compare_contains_image": LeftMetric(weak=_EMPTIED),
    "compare_docx_images": LeftMetric(),
    "compare_docx_lines": LeftMetric(),
    "compare_epub": LeftMetric(weak="a book with some of the chapters may pass"),
    "compare_highlighted_text": LeftMetric(),
    "compare_htmls": LeftMetric(weak="what follows the end of the shorter page is not looked at"),
    "compare_init_lines": LeftMetric(weak=_EMPTIED),
    "compare_insert_equation": LeftMetric(),
    "compare_line_spacing": LeftMetric(),
    "compare_python_pure_text": LeftMetric(),
    "compare_references": LeftMetric(),
    "compare_result_files": LeftMetric(),
    "compare_terminal_and_txt": LeftMetric(),
    "compare_time_in_speedtest_results": LeftMetric(),
    "compare_unique_train_records": LeftMetric(),
    "compare_videos": LeftMetric(),
    "decrease_brightness": LeftMetric(of_start=True),
    "evaluate_alignment": LeftMetric(weak="nearly any text passes"),
    "evaluate_conversion": LeftMetric(weak=_EMPTIED),
    "evaluate_presentation_fill_to_rgb_distance": LeftMetric(),
    "evaluate_spacing": LeftMetric(),
    "fuzzy_place_math": LeftMetric(),
    "has_page_numbers_in_footers": LeftMetric(weak="any digit in a footer passes"),
    "increase_saturation": LeftMetric(of_start=True),
    "is_added_to_steam_cart": LeftMetric(),
    "is_expected_active_tab_approximate": LeftMetric(_TABS),
    "is_expected_installed_extensions": LeftMetric(),
    "is_gold_text_included_in_pdf": LeftMetric(),
    "is_in_vm_clickboard": LeftMetric(),
    "is_included_all_json_objects": LeftMetric(),
    "is_shortcut_on_desktop": LeftMetric(("name", "exec")),
    "is_vlc_fullscreen": LeftMetric(),
    "is_vlc_recordings_folder": LeftMetric(),
}
REFUSED_METRICS = {
    "check_file_exists": "it looks on the judge's own disk, where no desktop's file lies",
    "check_python_file_by_gold_file": "the published one gives no score",
    "check_python_file_by_test_suite": "it runs what the policy wrote beside its own verdict: a score can be forged",
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
