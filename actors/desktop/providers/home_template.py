"""Make a HOME template: `python -m actors.desktop.providers.home_template [OUT]`; by default in the user's cache
folder.

The template has the settings of home.yaml. Where LibreOffice, GIMP or Thunderbird is installed, it also has a finished
user profile of it. Each is started once in a real desktop, and what it wrote is kept. With its profile Calc opens in a
quarter of the time and without first-run windows. Takes some seconds. OUT must not exist (the default is replaced).
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from actors.desktop.config import SandboxConfig
from actors.desktop.link import GuestLink
from actors.desktop.provider import DesktopSpec
from actors.desktop.providers import home
from actors.desktop.providers.sandbox.provider import SandboxProvider

OFFICE = ["soffice", "--norestore", "--nologo", "--nofirststartwizard", "--calc"]
_WRITER = "/org.openoffice.Office.Writer/AutoFunction"
_CORRECTIONS = (  # while one types; Writer has a second set of them for "AutoFormat"
    "AddNonBreakingSpace", "CapitalAtStartSentence", "ChangeAngleQuotes", "ChangeDash", "ChangeOrdinalNumber",
    "ChangeUnderlineWeight", "RemoveDoubleSpaces", "SetInetAttribute", "TransliterateRTL", "TwoCapitalsAtStart",
    "UseReplacementTable",
)  # fmt: skip
# Settings that a first run can't make: no tips, no news, no questions about formats, no recovery.
SETTINGS = {
    "/org.openoffice.Office.Common/Misc": {"FirstRun": "false", "ShowTipOfTheDay": "false"},
    "/org.openoffice.Setup/Product": {"LastTimeDonateShown": "2000000000", "LastTimeGetInvolvedShown": "2000000000"},
    # Pictures of a document's first page, in its file and in the list of recent ones, take half of a save and more.
    "/org.openoffice.Office.Common/Save/Document": {"WarnAlienFormat": "false", "GenerateThumbnail": "false"},
    "/org.openoffice.Office.Common/History": {"RecentDocsThumbnail": "false"},
    "/org.openoffice.Office.Recovery/RecoveryInfo": {"Enabled": "false"},
    "/org.openoffice.Office.Recovery/AutoSave": {"Enabled": "false"},
    "/org.openoffice.Office.Impress/Misc/NewDoc": {"AutoPilot": "false"},  # the choice of a template
    # What is typed stays as it was typed. Calc still evaluates a formula and reads "1/2" as a date: its input
    # line has rules for what a text means, and they are no corrections.
    "/org.openoffice.Office.Common/AutoCorrect": dict.fromkeys(
        [*_CORRECTIONS, "CorrectAccidentalCapsLock", "ReplaceDoubleQuote", "ReplaceSingleQuote"], "false"
    ),
    f"{_WRITER}/Format/Option": dict.fromkeys([*_CORRECTIONS, "ReplaceUserStyle"], "false"),
    f"{_WRITER}/Format/Option/ChangeToBullets": {"Enable": "false"},
    f"{_WRITER}/Format/ByInput": dict.fromkeys(
        ["Enable", "ChangeDash", "ChangeToBorders", "ChangeToTable", "DelSpacesAtStartEnd", "DelSpacesBetween"], "false"
    ),
    f"{_WRITER}/Format/ByInput/ApplyNumbering": {"Enable": "false"},
    f"{_WRITER}/Completion": {"Enable": "false", "CollectWords": "false"},
    "/org.openoffice.Office.Calc/Input": {"AutoInput": "false"},
}


OWNED = re.compile(r"^\[Install\w+\]\nDefault=(\S+)$", re.MULTILINE)  # which profile an installation of it has
MAIL_FILES = {  # of Thunderbird's profile: what takes time to make
    "prefs.js", "compatibility.ini", "times.json", "extensions.json", "addonStartup.json.lz4", "addons.json",
    "xulstore.json", "search.json.mozlz4", "cert9.db", "key4.db", "pkcs11.txt",
}  # fmt: skip
MAIL_SETTINGS = {
    "mail.provider.suppress_dialog_on_startup": "true",
    "mailnews.start_page.enabled": "false",
    "app.donation.eoy.version.viewed": "999",
    "datareporting.policy.dataSubmissionPolicyBypassNotification": "true",
    "mail.shell.checkDefaultClient": "false",
}


def settings_lines() -> str:
    """The settings in the form of LibreOffice's registrymodifications.xcu."""
    return "".join(
        f'<item oor:path="{path}"><prop oor:name="{name}" oor:op="fuse"><value>{value}</value></prop></item>\n'
        for path, pairs in SETTINGS.items()
        for name, value in pairs.items()
    )


def registry_of(profile: Path) -> Path:
    """The file of a profile that holds its settings."""
    return profile / "4" / "user" / "registrymodifications.xcu"


def complete(profile: Path) -> bool:
    """Whether a profile was made with the settings above."""
    registry = registry_of(profile)
    return registry.is_file() and settings_lines() in registry.read_text()


class Program(NamedTuple):
    """A program that makes its profile when it is started for the first time."""

    argv: list[str]
    window: str  # part of its title or class
    profile: Path  # below HOME
    finish: Callable[[Path], None]  # leaves of a profile what a later start needs


def _finish_office(profile: Path) -> None:
    registry = registry_of(profile)
    text = registry.read_text()
    registry.write_text(text.replace("</oor:items>", settings_lines() + "</oor:items>"))
    shutil.rmtree(profile / "4" / "crash", ignore_errors=True)
    (profile / "4" / ".lock").unlink(missing_ok=True)


def _finish_gimp(profile: Path) -> None:
    """Its window fills the screen; by itself it opens below the screen's lower end."""
    for session in profile.glob("*/sessionrc"):
        session.write_text(re.sub(r"\(position \d+ \d+\)", "(position 0 0)", session.read_text()).replace(
            '(maximized "no")', '(maximized "yes")'
        ))  # fmt: skip


def _finish_mail(profile: Path) -> None:
    """No installation owns the profile, so that a task's own takes its place; nothing asks for an account."""
    listed = profile / "profiles.ini"
    sections = listed.read_text().split("\n\n")
    owner = next((match[1] for section in sections if (match := OWNED.search(section))), "")
    kept = [
        section
        for section in sections
        if (not OWNED.search(section) and f"Path={owner}" in section) or "[General]" in section
    ]
    listed.write_text("\n\n".join(kept).replace("IsRelative=1", "IsRelative=1\nDefault=1") + "\n")
    for path in sorted(profile.rglob("*"), reverse=True):
        below = path.relative_to(profile)
        if str(below) in ("profiles.ini", owner) or (below.parts[0] == owner and below.name in MAIL_FILES):
            continue
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    with (profile / owner / "prefs.js").open("a") as prefs:
        prefs.write("".join(f'user_pref("{name}", {value});\n' for name, value in MAIL_SETTINGS.items()))


PROGRAMS = (
    Program(OFFICE, "Calc", home.OFFICE_PROFILE, _finish_office),
    Program(["gimp", "--no-splash"], "gimp", Path(".config", "GIMP"), _finish_gimp),
    Program(["thunderbird"], "thunderbird", Path(".thunderbird"), _finish_mail),
)


async def start_programs(out: Path, programs: list[Program]) -> None:
    """Let programs make their profiles in a desktop and copy these into `out`."""
    with tempfile.TemporaryDirectory(prefix="crl-") as state_dir:
        os.chmod(state_dir, 0o755)  # noqa: S103 - the desktop's own user passes through
        provider = await SandboxProvider.start(SandboxConfig(state_dir=state_dir), "make-home")
        try:
            desktop = await provider.boot(DesktopSpec(home_template=str(out)))
            link = await GuestLink.open(desktop, timeout_s=60)
            for program in programs:
                await link.call("launch", argv=program.argv, timeout_s=10)
                await link.call("wait_window", title=program.window, timeout_ms=90_000, timeout_s=100)
                await link.call("settle", timeout_ms=20_000, quiet_ms=500, timeout_s=30)
                await link.call("hotkey", keys=["ctrl", "q"], timeout_s=10)
                await link.call("settle", timeout_ms=20_000, quiet_ms=1000, timeout_s=30)
            await provider.freeze(desktop)
            await link.close()
            if desktop.outside is not None:
                for program in programs:
                    made = Path(desktop.outside.home) / program.profile
                    shutil.copytree(made, out / program.profile, symlinks=True, dirs_exist_ok=True)
        finally:
            await provider.close()
    for program in programs:
        program.finish(out / program.profile)


def main() -> int:
    """Make the template named by the only argument, or the user's own."""
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        sys.stderr.write(f"{__doc__}\n")
        return 2
    if len(sys.argv) == 2:
        out = Path(sys.argv[1])
    else:
        out = home.user_template()
        shutil.rmtree(out, ignore_errors=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(out.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    home.write(part)
    if here := [program for program in PROGRAMS if shutil.which(program.argv[0])]:
        asyncio.run(start_programs(part, here))
    part.rename(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
