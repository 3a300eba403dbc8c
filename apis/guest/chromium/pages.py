"""Chromium's own pages: where each is, what is asked of it over its own interface, and how a model reads the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

RESULT_CHARS = 1900
LINE_CHARS = 160


class Page(NamedTuple):
    """An address, the expression that the page is asked, and what its value says."""

    url: str
    asks: str
    says: Callable[[Any], list[str]]


def said(page: Page, value: Any) -> str:
    """What a page says, bounded."""
    lines = [f"{page.url} is open"]
    left = RESULT_CHARS - len(lines[0]) - 10
    for text in page.says(value):
        line = " ".join(text.encode("utf-8", "replace").decode().split())
        line = line if len(line) <= LINE_CHARS else line[: LINE_CHARS - 3] + "..."
        left -= len(line) + 1
        if left < 0:
            lines.append("...")
            break
        lines.append(line)
    return "\n".join(lines)


def on(value: Any) -> str:
    """A switch."""
    return "on" if value else "off"


def _preferences(*names: str, also: str = "{}") -> str:
    """An expression for the values of preferences by name, once the page has its interface; `also` adds to them."""
    return (
        "(async () => { if (typeof chrome.settingsPrivate !== 'object') return null;"
        f" const wanted = {list(names)!r};"
        " const all = (await chrome.settingsPrivate.getAllPrefs()).filter(each => wanted.includes(each.key));"
        f" return {{...Object.fromEntries(all.map(each => [each.key, each.value])), ...{also}}}; }})()"
    )


def _asked(message: str) -> str:
    """An expression for the answer to a message that the settings page sends to the browser."""
    return f"(await (await import('chrome://resources/js/cr.js')).sendWithPromise('{message}'))"


def _profile(value: Any) -> list[str]:
    user = value["sync"].get("signedInUsername") or ""
    return [
        f"profile: {value['profile'].get('name', '')}",
        f"signed in: {user or 'no'}",
        f"sign-in at the next start: {'allowed' if value.get('signin.allowed_on_next_startup') else 'not allowed'}",
    ]


def _passwords(value: Any) -> list[str]:
    return [
        f"offer to save passwords: {on(value.get('credentials_enable_service'))}",
        f"sign in automatically: {on(value.get('credentials_enable_autosignin'))}",
        f"warn of leaked passwords: {on(value.get('profile.password_manager_leak_detection'))}",
        f"saved passwords: {len(value['saved'])}",
        *(f"- {user} at {site}" for site, user in value["saved"]),
    ]


def _privacy(value: Any) -> list[str]:
    browsing = {0: "off", 1: "standard", 2: "enhanced"}
    cookies = {0: "blocked", 1: "allowed"}
    return [
        f"safe browsing: {browsing.get(value.get('generated.safe_browsing'), 'other')}",
        f"third-party cookies: {cookies.get(value.get('generated.third_party_cookie_blocking_setting'), 'other')}",
        f"do not track: {on(value.get('enable_do_not_track'))}",
        f"secure DNS: {value.get('dns_over_https.mode')}",
        f"warn of leaked passwords: {on(value.get('profile.password_manager_leak_detection'))}",
    ]


def _appearance(value: Any) -> list[str]:
    home = value.get("homepage")
    bar = {0: "always", 1: "on the new tab page", 2: "never"}
    return [
        f"theme: {value.get('extensions.theme.id') or {0: 'classic', 1: 'GTK'}.get(value['theme'], 'other')}",
        f"home button: {on(value.get('browser.show_home_button'))}",
        f"home page: {'the new tab page' if value.get('homepage_is_newtabpage') or not home else home}",
        f"bookmarks bar: {bar.get(value.get('bookmark_bar.visibility_state'), 'other')}",
        f"font size: {value.get('webkit.webprefs.default_font_size')}",
        f"smallest font size: {value.get('webkit.webprefs.minimum_font_size')}",
        f"standard font: {value.get('webkit.webprefs.fonts.standard.Zyyy')}",
        f"page zoom: {round(100 * value['zoom'])} %",
    ]


def _engines(value: Any) -> list[str]:
    return [
        *(f"search engine in use: {name} ({keyword})" for name, keyword, used in value if used),
        *(f"- {name} ({keyword})" for name, keyword, used in value if not used),
    ]


def _extensions(value: Any) -> list[str]:
    if not value:
        return ["no extension is installed"]
    return [f"{name} {version}: {on(enabled)}" for name, version, enabled in value]


def _bookmarks(value: Any) -> list[str]:
    if not value:
        return ["no bookmark is saved"]
    return [f"{folder}: {title or 'no title'} | {url}" for folder, title, url in value]


def _print(value: Any) -> list[str]:
    return [
        f"page: {value['title']}",
        f"destination: {value['to']}",
        f"sheets: {value['sheets']}",
        f"its button {value['button']!r} goes on, 'Cancel' closes it",
    ]


def _data(value: Any) -> list[str]:
    return [
        f"time range: {value['range']}",
        f"ticked: {', '.join(value['ticked']) or 'nothing'}",
        f"not ticked: {', '.join(value['other']) or 'nothing'}",
        f"nothing is deleted until its button {value['button']!r} is pressed",
    ]


PROFILE = Page(
    "chrome://settings/people",
    _preferences(
        "signin.allowed_on_next_startup",
        also=f"{{profile: {_asked('getProfileInfo')}, sync: {_asked('SyncSetupGetSyncStatus')}}}",
    ),
    _profile,
)
PASSWORDS = Page(
    "chrome://password-manager/settings",
    _preferences(
        "credentials_enable_service", "credentials_enable_autosignin", "profile.password_manager_leak_detection",
        also="{saved: (await chrome.passwordsPrivate.getSavedPasswordList()).slice(0, 20)"
        ".map(each => [each.affiliatedDomains?.[0]?.name ?? '', each.username])}",
    ),
    _passwords,
)  # fmt: skip
PRIVACY = Page(
    "chrome://settings/privacy",
    _preferences(
        "generated.safe_browsing", "generated.third_party_cookie_blocking_setting", "enable_do_not_track",
        "dns_over_https.mode", "profile.password_manager_leak_detection",
    ),
    _privacy,
)  # fmt: skip
APPEARANCE = Page(
    "chrome://settings/appearance",
    _preferences(
        "extensions.theme.id", "browser.show_home_button", "homepage", "homepage_is_newtabpage",
        "bookmark_bar.visibility_state", "webkit.webprefs.default_font_size",
        "webkit.webprefs.minimum_font_size", "webkit.webprefs.fonts.standard.Zyyy",
        also="{theme: (await chrome.settingsPrivate.getPref('extensions.theme.system_theme')).value,"
        " zoom: await chrome.settingsPrivate.getDefaultZoom()}",
    ),
    _appearance,
)  # fmt: skip
ENGINES = Page(
    "chrome://settings/search",
    "(async () => { if (typeof chrome.settingsPrivate !== 'object') return null;"
    f" const all = {_asked('getSearchEnginesList')};"
    " return [...all.defaults, ...all.actives].slice(0, 30).map(each => [each.name, each.keyword, each.default]); })()",
    _engines,
)
EXTENSIONS = Page(
    "chrome://extensions/",
    "typeof chrome.developerPrivate !== 'object' ? null : chrome.developerPrivate.getExtensionsInfo()"
    ".then(all => all.slice(0, 50).map(each => [each.name, each.version, each.state === 'ENABLED']))",
    _extensions,
)
BOOKMARKS = Page(
    "chrome://bookmarks/",
    "typeof chrome.bookmarks !== 'object' ? null : chrome.bookmarks.getTree().then(tree => { const found = [];"
    " const walk = (node, folder) => { for (const each of node.children ?? []) { if (found.length >= 100) return;"
    " if (each.url) found.push([folder, each.title.slice(0, 100), each.url.slice(0, 200)]);"
    " else walk(each, folder ? folder + '/' + each.title : each.title); } };"
    " for (const root of tree) walk(root, ''); return found; })",
    _bookmarks,
)

# Walks into the parts that a page hides from its document: open shadow trees.
_DEEP = """const all = (root, name) => { const found = []; const walk = node => {
  for (const each of node.children ?? []) { if (each.localName === name) found.push(each);
    if (each.shadowRoot) walk(each.shadowRoot); walk(each); } }; walk(root); return found; };"""
PRINT = Page(
    "chrome://print/",
    "(() => {"
    + _DEEP
    + """
  const [to] = all(document, 'print-preview-destination-select');
  const [head] = all(document, 'print-preview-header');
  const [strip] = all(document, 'print-preview-button-strip');
  const sheets = head?.shadowRoot?.textContent.match(/\\d+ (page|sheet)s?( of paper)?/);
  const select = to?.shadowRoot?.querySelector('select');
  const button = strip?.shadowRoot?.querySelector('.action-button');
  if (!sheets || !select || !select.selectedOptions.length || !button) return null;
  return {to: select.selectedOptions[0].textContent.trim(), sheets: sheets[0], button: button.textContent.trim()};
})()""",
    _print,
)
DATA = Page(
    "chrome://settings/clearBrowserData",
    "(() => {"
    + _DEEP
    + """
  const [dialog] = all(document, 'settings-clear-browsing-data-dialog');
  const inside = dialog?.shadowRoot;
  if (!inside?.querySelector('cr-dialog')?.open) return null;
  const chip = all(inside, 'cr-chip').find(each => each.selected);
  const button = inside.querySelector('#deleteButton');
  const boxes = all(inside, 'settings-checkbox').map(each => [each.textContent.trim(), each.checked]);
  if (!chip || !button || !boxes.length) return null;
  const named = ticked => boxes.filter(each => each[1] === ticked).map(each => each[0]);
  return {range: chip.textContent.trim(), ticked: named(true), other: named(false), button: button.textContent.trim()};
})()""",
    _data,
)
