"""The functions of Chromium under their published names; none takes an argument."""

from __future__ import annotations

from apis.functions.declaration import Function, Tool


def _function(name: str, description: str) -> Function:
    return Function("BrowserTools", name, Tool, (), description)


FUNCTIONS: tuple[Function, ...] = (
    _function("open_profile_settings", "Show the settings of the profile and its account, and say what they are."),
    _function("open_password_settings", "Show the settings of saved passwords, and say what they are."),
    _function("open_privacy_settings", "Show the settings of privacy and security, and say what they are."),
    _function("open_appearance_settings", "Show the settings of looks, fonts and zoom, and say what they are."),
    _function("open_search_engine_settings", "Show the settings of search engines, and say which there are."),
    _function("bring_back_last_tab", "Open the tab or window again that was closed last."),
    _function("print", "Open the print dialog for the page in front; its button prints or saves as PDF."),
    _function("delete_browsing_data", "Open the dialog that deletes browsing data; its button deletes what is ticked."),
    _function("open_extensions", "Show the extensions, and list them."),
    _function("bookmark_page", "Bookmark the page in front, on the bookmarks bar."),
    _function("open_bookmarks", "Show the bookmark manager, and list the bookmarks."),
)
