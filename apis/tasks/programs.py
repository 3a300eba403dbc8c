"""What the desktop's programs write into HOME by themselves: settings, caches, histories and locks.

No rule reaches what a person keeps, what a task is about, or what a program would run. There is no trash: the file
manager removes for good.
"""

from __future__ import annotations

from apis.guest.code.start import USER_DATA, WINDOW_PROFILE
from apis.tasks.verify.allowed import CHANGE, CREATE, NARROW, REMOVE, May
from apis.tasks.verify.manifest import FOLDER, NOTE

BOOKMARKS = ".config/chromium/Default/Bookmarks"
_KEPT, _ANY = (CREATE, CHANGE, NARROW), (CREATE, CHANGE, NARROW, REMOVE)

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
    # Of who plays a sound, made again at each start; it leads to a folder of the desktop's own.
    May(".config/pulse/*-runtime", _ANY, leads="/tmp/pulse-*"),  # noqa: S108
    May(".local/share/gvfs-metadata/**", _ANY),
    May(".local/share/recently-used.xbel*", _ANY),
)
FILES = (May(".config/libfm/**", _KEPT), May(".config/pcmanfm/**", _KEPT))
EDITOR = (May(".config/Mousepad/**", _KEPT), May(".local/share/Mousepad/**", _ANY))
# What an office would run: macros and extensions, which no task is done by leaving.
_MACROS = ("Scripts", "basic", "uno_packages")
OFFICE = (
    May(".config/libreoffice/**", _KEPT, but=tuple(f".config/libreoffice/*/user/{code}/**" for code in _MACROS)),
    May(".config/libreoffice/4/.lock", _ANY),
    May(".config/libreoffice/4/user/backup/**", _ANY),
    May(".config/libreoffice/4/user/temp/**", _ANY),
    May(".config/libreoffice/4/user/extensions/tmp/**", _ANY),
    May(".config/libreoffice/**/lu*.tmp", _ANY),
    May("**/.~lock.*#", _ANY, kinds=(NOTE,)),  # of an open document
)


def _chromium(profile: str) -> tuple[May, ...]:
    """What Chromium does with its folder; what is an application's data there may come and change, but not go."""
    fleeting = (
        "BrowserMetrics/**", "Singleton*", "**/LOCK", "**/LOG", "**/LOG.old", "**/CURRENT", "**/MANIFEST-*", "**/*.log",
        "**/*.ldb", "**/*.dbtmp", "**/*-journal", "**/*-wal", "**/*-shm", "**/*.tmp", "**/.org.chromium.*",
        "**/Sessions/**", "**/Sessions_Encrypted/**", "**/blob_storage/**", "**/*Cache*/**", "**/*_cache/**",
        "Crash Reports/**", "Crashpad/**", "**/Current *", "**/Last *",
    )  # fmt: skip
    code = (f"{profile}/**/*Extensions/**", f"{profile}/NativeMessagingHosts/*")
    folder = May(f"{profile}/**", _KEPT, but=(BOOKMARKS, *code))
    return (folder, *(May(f"{profile}/{paths}", _ANY, loosely=True) for paths in fleeting))


CHROMIUM = (
    *_chromium(".config/chromium"),
    May(".cache/chromium/**", _ANY, loosely=True),
    *(May(f"{place}/chromium-headless/**", _ANY, loosely=True) for place in (".cache", ".config")),
    May(".pki/**", _KEPT),
)
VLC = (
    May(".cache/vlc/**", _ANY),
    May(".config/QtProject.conf*", _ANY),
    May(".config/vlc/**", _KEPT),
    May(".local/share/vlc/**", _KEPT, but=(".local/share/vlc/lua/**",)),
)
CODE = (
    May(f"{USER_DATA}/**", _ANY, loosely=True),
    May(f"{WINDOW_PROFILE}/**", _ANY, loosely=True),
    May(".vscode/extensions", (CREATE,)),
    May(".vscode/extensions/extensions.json", (CREATE,)),
)
_GIMP_CODE = tuple(f".config/GIMP/*/{code}/*" for code in ("plug-ins", "scripts", "interpreters", "modules"))
PICTURES = (
    May(".config/GIMP/**", _ANY, but=_GIMP_CODE),
    *(May(f".cache/{name}/**", _ANY) for name in ("gimp", "babl", "gegl-0.4")),
    May(".local/share/gegl-0.4/**", _KEPT, but=(".local/share/gegl-0.4/plug-ins/*",)),
    May(".config/eog/**", _KEPT),
    May(".config/evince/**", _KEPT),
)
_BOX = ".thunderbird/*"
_LETTERS = (f"{_BOX}/Mail/**", f"{_BOX}/ImapMail/**")  # what people keep; of it a program makes indexes and empty boxes
MAIL = (
    May(".cache/thunderbird/**", _ANY, loosely=True),
    May(".thunderbird/**", _KEPT, but=(*_LETTERS, f"{_BOX}/extensions/*")),
    *(May(f"{_BOX}/{name}", _ANY, loosely=True) for name in (
        "lock", ".parentlock", "times.json", "**/*.sqlite*", "**/*.db-journal", "**/*.tmp", "datareporting/**",
        "crashes/**", "minidumps/**", "storage/**", "saved-telemetry-pings/**", "**/*.msf",
    )),
    *(May(letters, (CREATE,)) for letters in _LETTERS),
    May("thunderbird", (CREATE,), kinds=(FOLDER,)),
)  # fmt: skip
# Any program may be opened on the way, so the rules of all hold for each task.
RULES: tuple[May, ...] = (*DESKTOP, *FILES, *EDITOR, *OFFICE, *CHROMIUM, *VLC, *CODE, *PICTURES, *MAIL)
