"""What the desktop's programs write into HOME by themselves: settings, caches, histories and locks.

Invariant: a rule names a program's own place. No rule reaches what a person keeps in HOME, or what a task is about.
Chromium's bookmarks and VS Code's extensions are therefore left out. Trash belongs to no program, since the desktop's
file manager removes for good. A program takes away only files that it can make anew.
"""

from __future__ import annotations

from apis.guest.code.start import USER_DATA, WINDOW_PROFILE
from apis.tasks.verify.allowed import CHANGE, CREATE, REMOVE, May
from apis.tasks.verify.manifest import Deed

BOOKMARKS = ".config/chromium/Default/Bookmarks"
_KEPT, _ANY = (CREATE, CHANGE), (CREATE, CHANGE, REMOVE)

DESKTOP = (
    May(".bash_history", _KEPT),
    May(".lesshst", _KEPT),
    May(".python_history", _KEPT),
    May(".viminfo", _KEPT),
    May(".cache/openbox/**", _KEPT),
    May(".gnupg/**", _ANY),  # the office asks for keys
    May(".cache/fontconfig/**", _ANY),
    May(".cache/mesa_shader_cache/**", _ANY),
    May(".cache/mesa_shader_cache_db/**", _ANY),
    May(".cache/gstreamer-1.0/**", _ANY),
    May(".cache/menus/**", _ANY),
    May(".cache/thumbnails/**", _ANY),
    May(".cache/dconf/**", _ANY),
    May(".config/dconf/**", _KEPT),
    May(".config/glib-2.0/settings/**", _KEPT),
    May(".config/gtk-2.0/**", _KEPT),
    May(".config/gtk-3.0/bookmarks", _KEPT),
    May(".config/ibus/**", _KEPT),
    May(".config/pulse/**", _KEPT),
    May(".local/share/gvfs-metadata/**", _ANY),
    May(".local/share/recently-used.xbel*", (*_ANY, Deed.LOCKED)),  # GTK narrows its permissions once it lies there
)
FILES = (May(".config/libfm/**", _KEPT), May(".config/pcmanfm/**", _KEPT))
EDITOR = (May(".config/Mousepad/**", _KEPT), May(".local/share/Mousepad/**", _ANY))
OFFICE = (
    May(".config/libreoffice/**", _KEPT),
    May(".config/libreoffice/4/.lock", _ANY),
    May(".config/libreoffice/4/user/backup/**", _ANY),
    May(".config/libreoffice/4/user/temp/**", _ANY),
    May(".config/libreoffice/4/user/extensions/tmp/**", _ANY),
    May(".config/libreoffice/**/lu*.tmp", _ANY),
    May("**/.~lock.*#", _ANY),  # of an open document, beside it
    May("Documents/**/lu*.tmp", _ANY, loosely=True),  # of a document that is just being saved
)


def _chromium(profile: str) -> tuple[May, ...]:
    """What Chromium does with its folder; what is an application's data there may come and change, but not go."""
    fleeting = (
        "BrowserMetrics/**", "Singleton*", "**/LOCK", "**/LOG", "**/LOG.old", "**/CURRENT", "**/MANIFEST-*", "**/*.log",
        "**/*.ldb", "**/*.dbtmp", "**/*-journal", "**/*-wal", "**/*-shm", "**/*.tmp", "**/.org.chromium.*",
        "**/Sessions/**", "**/Sessions_Encrypted/**", "**/blob_storage/**", "**/*Cache*/**", "**/*_cache/**",
        "Crash Reports/**", "Crashpad/**", "**/Current *", "**/Last *",
    )  # fmt: skip
    folder = May(f"{profile}/**", _KEPT, but=BOOKMARKS)
    return (folder, *(May(f"{profile}/{paths}", _ANY, loosely=True) for paths in fleeting))


CHROMIUM = (*_chromium(".config/chromium"), May(".cache/chromium/**", _ANY, loosely=True), May(".pki/**", _KEPT))
VLC = (
    May(".cache/vlc/**", _ANY),
    May(".config/QtProject.conf*", _ANY),
    May(".config/vlc/**", _KEPT),
    May(".local/share/vlc/**", _KEPT),
)
CODE = (
    May(f"{USER_DATA}/**", _ANY, loosely=True),
    May(f"{WINDOW_PROFILE}/**", _ANY, loosely=True),
    May(".vscode/extensions", (CREATE,)),
    May(".vscode/extensions/extensions.json", (CREATE,)),
)
# Any program may be opened on the way, so the rules of all hold for each task.
RULES: tuple[May, ...] = (*DESKTOP, *FILES, *EDITOR, *OFFICE, *CHROMIUM, *VLC, *CODE)
