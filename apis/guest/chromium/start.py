"""How Chromium is started on a desktop, alike by an action, a set-up and a command in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

PROGRAMS = {"chromium", "chromium-browser"}
HELPER = "helper"  # folder next to this file: an extension that does nothing by itself
HELPER_ID = "kiebdjkcbfffdcohmcjchhkncbflgoia"  # of the key in its manifest
PROFILE = ".config/chromium"
# WebUIOmniboxAimPopup is a hidden page of an AI mode that needs a network: it took 0.6 s of processor time at a start.
# A frame of another origin in a process of its own could not be asked for what lies on its elements.
OFF = (
    *("Translate", "OptimizationHints", "SpareRendererForSitePerProcess", "WebUIOmniboxAimPopup"),
    *("IsolateOrigins", "SitePerProcess", "IsolateSandboxedIframes", "OriginKeyedProcessesByDefault"),
)
# A little memory for the disk cache: HOME is in memory.
CACHE_BYTES = 8 << 20
# The user is asked nothing at the start, nothing is fetched in the background and nothing moves by itself; there is no
# GPU. The port is the kernel's choice: it is written into the profile, and only this desktop reaches its loopback.
QUIET = (
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-search-engine-choice-screen",
    "--hide-crash-restore-bubble",
    "--password-store=basic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-sync",
    "--disable-breakpad",
    "--no-pings",
    "--disable-gpu",
    "--in-process-gpu",
    "--disable-dev-shm-usage",
    "--disable-smooth-scrolling",
    "--renderer-process-limit=8",
    f"--disk-cache-size={CACHE_BYTES}",
    f"--disable-features={','.join(OFF)}",
    "--force-renderer-accessibility",
    "--remote-debugging-port=0",
)


def flags(helper: str) -> list[str]:
    """The flags; `helper` is the path of the folder `HELPER` as the desktop sees it."""
    return [*QUIET, f"--load-extension={helper}"]


def command(argv: Sequence[str], helper: str) -> list[str]:
    """`argv`, which starts Chromium, with the flags."""
    return [argv[0], *flags(helper), *argv[1:]]


def wrapper(helper: str) -> str:
    """Content of a file in /etc/chromium.d, which Debian's start script of Chromium reads: the same flags."""
    return f'CHROMIUM_FLAGS="$CHROMIUM_FLAGS {" ".join(flags(helper))}"\nexport CHROMIUM_FLAGS\n'
