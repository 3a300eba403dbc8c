"""Make a HOME template: `python -m actors.desktop.providers.home_template [OUT]`; by default in the user's cache
folder.

The template has the settings of home.yaml. Where LibreOffice is installed, it also has a finished user profile.
LibreOffice is started once in a real desktop, and what it wrote is kept. With the profile Calc opens in a quarter of
the time and without first-run windows. Takes some seconds. OUT must not exist (the default is replaced).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from pathlib import Path

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
    # What is typed stands there as it was typed. Calc still evaluates a formula and reads "1/2" as a date: its input
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


async def start_office(out: Path) -> None:
    """Let LibreOffice make its profile in a desktop and copy it into `out`."""
    with tempfile.TemporaryDirectory(prefix="crl-") as state_dir:
        os.chmod(state_dir, 0o755)  # noqa: S103 - the desktop's own user passes through
        provider = await SandboxProvider.start(SandboxConfig(state_dir=state_dir), "make-home")
        try:
            desktop = await provider.boot(DesktopSpec(home_template=str(out)))
            link = await GuestLink.open(desktop, timeout_s=60)
            await link.call("launch", argv=OFFICE, timeout_s=10)
            await link.call("wait_window", title="Calc", timeout_ms=90_000, timeout_s=100)
            await link.call("settle", timeout_ms=20_000, quiet_ms=500, timeout_s=30)
            await link.call("hotkey", keys=["ctrl", "q"], timeout_s=10)
            await link.call("settle", timeout_ms=20_000, quiet_ms=1000, timeout_s=30)
            await provider.freeze(desktop)
            await link.close()
            if desktop.outside is not None:
                shutil.copytree(
                    Path(desktop.outside.home) / home.OFFICE_PROFILE, out / home.OFFICE_PROFILE, symlinks=True
                )
        finally:
            await provider.close()
    registry = registry_of(out / home.OFFICE_PROFILE)
    text = registry.read_text()
    registry.write_text(text.replace("</oor:items>", settings_lines() + "</oor:items>"))
    shutil.rmtree(out / home.OFFICE_PROFILE / "4" / "crash", ignore_errors=True)
    (out / home.OFFICE_PROFILE / "4" / ".lock").unlink(missing_ok=True)


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
    if shutil.which("soffice"):
        asyncio.run(start_office(part))
    part.rename(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
