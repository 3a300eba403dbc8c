"""Switching an extension off, as another window of the editor would.

Invariant: the list of what is off is the one that the window itself keeps in its browser storage. All windows of an
address share it. A window that changes it tells the others over a channel of the storage's name.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from guest.chromium.devtools import DevTools
from guest.code import start as code_start
from guest.paths import wrong

PORT_FILE = "DevToolsActivePort"
_SWITCH = """(async (id) => {
  const name = 'vscode-web-state-db-global', store = 'ItemTable', key = 'extensionsIdentifiers/disabled';
  const done = (asked) => new Promise((good, bad) => {
    asked.onsuccess = () => good(asked.result);
    asked.onerror = () => bad(asked.error);
  });
  const database = await done(indexedDB.open(name));
  try {
    const table = database.transaction(store, 'readwrite').objectStore(store);
    const off = JSON.parse((await done(table.get(key))) ?? '[]');
    if (off.some((each) => each.id.toLowerCase() === id)) return false;
    const value = JSON.stringify([...off, {id}]);
    await done(table.put(value, key));
    const channel = new BroadcastChannel(name);
    channel.postMessage({changed: new Map([[key, value]])});
    channel.close();
    return true;
  } finally {
    database.close();
  }
})"""


def switch_off(extension_id: str, until: float) -> bool:
    """Put an extension on the list; False where it was there already. Raises Refused."""
    expression = f"{_SWITCH}({json.dumps(extension_id.lower())})"
    asked = {"expression": expression, "awaitPromise": True, "returnByValue": True}
    try:
        port, path = Path(os.environ["HOME"], code_start.WINDOW_PROFILE, PORT_FILE).read_text()[:200].split()
        link = DevTools(int(port), path, until)
        try:
            session = link.ask("Target.attachToTarget", {"targetId": _page(link, until), "flatten": True}, until)
            result = link.ask("Runtime.evaluate", asked, until, str(session["sessionId"]))
        finally:
            link.close()
    except (OSError, ValueError) as error:
        raise wrong("VS Code's window can't be reached: close it and open it again") from error
    if "exceptionDetails" in result:
        raise wrong("VS Code's window did not take the change: close it and open it again")
    return bool(result["result"].get("value"))


def _page(link: DevTools, until: float) -> str:
    """The target that shows the editor. Raises OSError."""
    for each in link.ask("Target.getTargets", {}, until)["targetInfos"]:
        if each["type"] == "page" and each["url"].startswith(f"http://{code_start.HOST}:{code_start.PORT}/"):
            return str(each["targetId"])
    raise ConnectionError("no window of the editor")
