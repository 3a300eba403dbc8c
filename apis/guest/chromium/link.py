"""Chromium, reached over the DevTools port that it wrote into its profile.

Nothing lasts beyond `until`, a moment of `time.monotonic`; every failure is a Refused. The tabs are seen through a
hidden page of the helper extension, so that looking at them disturbs none of them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from guest import Refused
from guest.application import command_lines
from guest.chromium.devtools import DevTools, soon
from guest.chromium.start import HELPER_ID, PROFILE, PROGRAMS

LOOK_S = 0.02
SHORT_S = 1.0  # for a command that only ends something
_APPEARED = ("Target.targetCreated", "Target.targetInfoChanged")
RESULT_CHARS, LINE_CHARS = 1900, 160
_TABS = Path(__file__).with_name("tabs.js").read_text()
SILENT = "Chromium does not answer: a dialog or a busy page may hold it"
LOADING = ("Inspected target navigated or closed", "Execution context was destroyed", "Cannot find context")


def failed(text: str) -> Refused:
    """A refusal that the model reads."""
    return Refused("tool_failed", text)


def clean(text: Any, most: int) -> str:
    """A title or address in one line of at most `most` characters."""
    line = " ".join(str(text).encode("utf-8", "replace").decode().split())
    return line if len(line) <= most else line[: most - 3] + "..."


def tabs_script(what: str) -> str:
    """The expression for a function of tabs.js."""
    return f"({_TABS}).{what}()"


def described(url: str, lines: list[Any]) -> str:
    """An answer of bounded lines: that the page is open, and what it holds."""
    shown = [f"{url} is open"]
    left = RESULT_CHARS - len(shown[0]) - 10
    for each in lines:
        line = clean(each, LINE_CHARS)
        left -= len(line) + 1
        if left < 0:
            shown.append("...")
            break
        shown.append(line)
    return "\n".join(shown)


class Browser:
    """The connection, made when first needed and again when Chromium was started again."""

    def __init__(self) -> None:
        self._tools: DevTools | None = None
        self._helper = ""  # session of the hidden page
        self._context = ""  # of the profile's own pages
        self._kept = ("", "")  # a page that is looked into again and again, and the session with it
        self._worlds: dict[str, int] = {}  # of this page, by frame

    @property
    def ready(self) -> bool:
        return self._tools is not None

    def run(self, expression: str, until: float) -> Any:
        """What a JavaScript expression gives that runs in the helper extension. Raises Refused."""
        self.connected(until)
        return self._evaluate(expression, until, self._helper)

    def ask(self, method: str, until: float, session: str = "", **params: Any) -> dict[str, Any]:
        """Carry out a DevTools command. Raises Refused."""
        assert self._tools is not None
        try:
            return self._tools.ask(method, params, until, session)
        except TimeoutError as error:
            raise failed(SILENT) from error
        except OSError as error:
            self._drop()
            raise failed(f"Chromium is gone: {error}") from error

    def pages(self, until: float) -> list[dict[str, Any]]:
        """Everything that is shown as a page: id, url, title and more of each. Raises Refused."""
        self.connected(until)
        infos = self.ask("Target.getTargets", until)["targetInfos"]
        return [info for info in infos if info["type"] == "page" and HELPER_ID not in info["url"]]

    def incognito(self, until: float) -> list[dict[str, Any]]:
        """Pages that the helper extension does not see, for they are Incognito ones. Raises Refused."""
        return [page for page in self.pages(until) if page.get("browserContextId") != self._context]

    def show(self, url: str, expression: str, until: float, again: bool = False) -> Any:
        """Bring the page `url` of Chromium's own to the front; what an expression gives in it, once it is not null.

        The page gets a tab where it has none. With `again` one that gives null is loaded again. Raises Refused.
        """
        for page in self.pages(until):
            if page["url"].rstrip("/") == url.rstrip("/"):
                target = page["targetId"]
                if again:
                    with self._attached(target, until) as session:
                        if self._evaluate(expression, until, session) is None:
                            self.ask("Page.reload", until, session)
                given = self.read(target, expression, until)  # before it has to be drawn, which takes longer
                self.ask("Target.activateTarget", until, targetId=target)
                return given
        return self.read(self.ask("Target.createTarget", until, url=url)["targetId"], expression, until)

    def wait_page(self, url: str, cause: Callable[[], None], until: float) -> str:
        """The page whose address begins with `url` that `cause` makes appear; its id. Raises Refused."""
        self.connected(until)
        assert self._tools is not None
        self._tools.forget_events()
        self.ask("Target.setDiscoverTargets", until, discover=True)
        known = {page["targetId"] for page in self.pages(until)}
        try:
            cause()
            while True:
                event = self._tools.event(lambda each: each["method"] in _APPEARED, until)
                info = event["params"]["targetInfo"]
                if info["url"].startswith(url) and info["targetId"] not in known:
                    return str(info["targetId"])
        except OSError as error:
            raise failed(f"nothing appeared: {error}") from error
        finally:
            if self._tools is not None:
                self.ask("Target.setDiscoverTargets", soon(SHORT_S), discover=False)
                self._tools.forget_events()

    def read(self, target: str, expression: str, until: float) -> Any:
        """What an expression gives in a page, once it is not null. Raises Refused."""
        with self._attached(target, until) as session:
            while True:
                try:
                    given = self._evaluate(expression, until, session)
                except Refused as refused:
                    if not any(part in str(refused) for part in LOADING):
                        raise
                    given = None
                if given is not None:
                    return given
                if time.monotonic() + LOOK_S >= until:
                    raise failed("the page did not finish loading")
                time.sleep(LOOK_S)

    def look(self, target: str, expression: str, until: float, path: Sequence[int] = ()) -> Any:
        """What an expression gives in a page now, over a session that is kept. Raises Refused.

        `path` leads to a frame of the page: the number of each frame in the one that holds it. The expression runs in a
        world that no script of the page has changed.
        """
        if self._kept[0] != target:
            self.unlook()
            made = self.ask("Target.attachToTarget", until, targetId=target, flatten=True)
            self._kept = target, str(made["sessionId"])
        session, frame = self._kept[1], target
        if path:
            tree = self.ask("Page.getFrameTree", until, session)["frameTree"]
            for number in path:
                tree = tree["childFrames"][number]
            frame = tree["frame"]["id"]
        if frame not in self._worlds:
            made = self.ask("Page.createIsolatedWorld", until, session, frameId=frame, worldName="sight")
            self._worlds[frame] = made["executionContextId"]
        return self._evaluate(expression, until, session, contextId=self._worlds[frame])

    def unlook(self) -> None:
        """Let go of the session that is kept."""
        session, self._kept = self._kept[1], ("", "")
        self._worlds.clear()
        if session and self._tools is not None:
            with contextlib.suppress(Refused):
                self.ask("Target.detachFromTarget", soon(SHORT_S), sessionId=session)

    @contextlib.contextmanager
    def _attached(self, target: str, until: float) -> Iterator[str]:
        """A session with a page, for as long as it is needed."""
        session = str(self.ask("Target.attachToTarget", until, targetId=target, flatten=True)["sessionId"])
        try:
            yield session
        finally:
            if self._tools is not None:
                self.ask("Target.detachFromTarget", soon(SHORT_S), sessionId=session)

    def connected(self, until: float) -> None:
        """Be connected to the Chromium that runs now. Raises Refused."""
        if self._tools is not None:
            try:
                self._tools.ask("Runtime.evaluate", {"expression": "1"}, until, self._helper)
                return
            except TimeoutError as error:
                raise failed(SILENT) from error
            except (OSError, Refused):  # it was started again, or its hidden page has gone
                self._drop()
        try:
            self._tools = DevTools.of_profile(PROFILE, until)
        except TimeoutError as error:
            raise failed(SILENT) from error
        except (OSError, ValueError) as error:
            if running():
                text = "Chromium can't be reached: close it and open it with Agent.open_app('chrome')"
            else:
                text = "Chromium is not running: open it first"
            raise failed(text) from error
        try:
            self._open_helper(until)
        except BaseException:
            self._drop()
            raise

    def _open_helper(self, until: float) -> None:
        url = f"chrome-extension://{HELPER_ID}/manifest.json"
        while True:
            target = self.ask("Target.createTarget", until, url=url, hidden=True)["targetId"]
            with contextlib.suppress(Refused):
                self._helper = self.ask("Target.attachToTarget", until, targetId=target, flatten=True)["sessionId"]
                if self.read(target, _LOADED, until) == "object":
                    about = self.ask("Target.getTargetInfo", until, targetId=target)["targetInfo"]
                    self._context = about.get("browserContextId", "")
                    return
            if self._tools is None or time.monotonic() + LOOK_S >= until:
                break
            self.ask("Target.closeTarget", until, targetId=target)
            time.sleep(LOOK_S)  # right after its start Chromium has not loaded its extensions yet
        raise failed("the extension 'Desktop functions' is off: switch it on at chrome://extensions")

    def _evaluate(self, expression: str, until: float, session: str, **more: Any) -> Any:
        """What an expression gives in a page. Raises Refused."""
        asked = {"expression": expression, "awaitPromise": True, "returnByValue": True, **more}
        result = self.ask("Runtime.evaluate", until, session, **asked)
        if "exceptionDetails" in result:
            about = result["exceptionDetails"].get("exception", {}).get("description", "an error")
            raise failed(f"Chromium: {clean(about, 200)}")
        return result.get("result", {}).get("value")

    def _drop(self) -> None:
        if self._tools is not None:
            self._tools.close()
        self._tools, self._helper, self._kept = None, "", ("", "")


_LOADED = "location.protocol === 'about:' ? null : typeof chrome.tabs"


def running() -> bool:
    """Whether there is a Chromium itself, and not only a process that one has left."""
    return any(b" --type=" not in words for words in command_lines(PROGRAMS))
