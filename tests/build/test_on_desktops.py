"""A build on real desktops: right functions are accepted, faulty ones are not, and nothing generated runs here."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from actors.cluster.evaluate.settings import ASKED
from tests.actors.desktop.endpoint_stand_in import Recorded, StandIn, completion

pytestmark = [pytest.mark.desktop, pytest.mark.slow, pytest.mark.timeout(500)]
MARK = "planted_here"  # in every generated source
LINE = {"number": {"kind": "integer", "limits": [1, 99]}, "line": {"kind": "line", "limits": [50]}}
RIGHT = """
lines = app.text().split("\\n")
if number > len(lines):
    raise ValueError(f"the text has {len(lines)} lines")
lines[number - 1] = line
app.set_text("\\n".join(lines))
return f"line {number} is {line}"
"""
BODIES = {
    "right": RIGHT,
    "off_by_one": RIGHT.replace("number - 1", "number"),
    "silent": "return f'line {number} is {line}'",
    "always_first": RIGHT.replace("lines[number - 1]", "lines[0]"),
    "never_ends": "while True:\n    pass",
    "exits": "import os\nos._exit(0)",
    "reads_others": "app.set_text(open('/etc/passwd').read())",
    "floods": "print('x' * 10_000_000)\nreturn 'x' * 10_000_000",
    "lacks_an_import": RIGHT.replace("app.set_text(", "app.set_text(re.sub('', '', '') + "),
    "unwritten": RIGHT.replace("app.set_text", "str"),
}
CASES = {
    "right": [
        {"arguments": {"number": 3, "line": "x"}, "puts": {"text": "a\nb\nc"},
         "effects": [{"read": "text", "equals": "a\nb\nx"}]},
        {"arguments": {"number": 1, "line": "y"}, "puts": {"text": "a\nb"}, "says": "1",
         "effects": [{"read": "text", "equals": "y\nb"}]},
    ],
    "wrong": [{"arguments": {"number": 40, "line": "x"}, "refusal": "lines"}],
}  # fmt: skip
# Every event by which Python would load, compile or run a text of the build in the process that builds.
HOOKED = f"""
import sys
seen = []
def hook(event, args):
    if event in ("compile", "exec", "import") and any({MARK!r} in str(part) for part in args):
        seen.append(event)
sys.addaudithook(hook)
compile("{MARK} = 1", "<probe>", "exec")
assert seen == ["compile"], "the hook sees"
seen.clear()
from actors.cluster.cli import main
sys.argv = ["computerrl", *sys.argv[1:]]
status = main()
sys.stderr.write(f"seen={{seen}}")
sys.exit(status)
"""


def fenced(kind: str, text: str) -> str:
    return f"```{kind}\n{text}\n```"


def recording(names: Collection[str]) -> dict[str, Any]:
    functions = [{"name": name, "does": "Replace one line.", "params": LINE} for name in names]
    answers: dict[str, Any] = {"require 1": fenced("json", json.dumps({"functions": functions}))}
    for name in names:
        body = BODIES[name]
        source = f"def {name}(number, line):\n    {MARK} = 0\n{textwrap.indent(body.strip(), '    ')}"
        answers |= {f"implement {name}": fenced("python", source), f"cases {name}": fenced("json", json.dumps(CASES))}
        plans = {"plans": {"18": [{"number": 1, "line": "mirror"}]}}  # Make draiwim.md say nothing but 'mirror'
        answers[f"trial {name}"] = fenced("json", json.dumps(plans))
    return answers


class PlaysToo(Recorded):
    """Plays an episode, too: by the function that is built where its prompt has it, else by keys."""

    async def answer(self, body: dict[str, Any], number: int) -> web.StreamResponse:
        messages = body["messages"]
        if messages[-1]["content"].startswith(("stage: ", ASKED)):
            return await super().answer(body, number)
        called = ["EditorTools.right(number=1, line='mirror')"]
        typed = ["Agent.hotkey(keys=['ctrl', 'a'])", "Agent.type(text='mirror')"]
        steps = called if "def right" in json.dumps(messages) else typed
        steps += ["Agent.hotkey(keys=['ctrl', 's'])", "Agent.exit(success=True)"]
        return completion(fenced("python", steps[sum(each["role"] == "assistant" for each in messages) % len(steps)]))


async def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    command, environment = [sys.executable, *words], {**os.environ, **env}
    return await asyncio.to_thread(
        subprocess.run, command, env=environment, capture_output=True, text=True, check=False, timeout=500
    )


USED = """
import asyncio, sys
from actors.cluster.checks.desk import CALL_S, provider, sandbox_set
from actors.desktop.link import GuestLink
from actors.desktop.provider import DesktopSpec
from apis.actions.grammar import parse
from apis.prompts.system import compact_system
action = parse("EditorTools.right(number=2, line='used')", "text_editor")
assert "def right(number: int, line: str)" in compact_system("text_editor")
async def main():
    async with provider(sandbox_set([f"desktops.provider.state_dir={sys.argv[1]}"])) as made:
        desktop = await made.boot(DesktopSpec())
        link = await GuestLink.open(desktop, timeout_s=CALL_S)
        await link.call("write_file", path="a.txt", data=b"a\\nb", timeout_s=CALL_S)
        argv = ["mousepad", f"{desktop.home}/a.txt"]
        await link.call("open_window", argv=argv, timeout_ms=20000, timeout_s=CALL_S)
        args = {key: getattr(action, key) for key in ("owner", "name", "arguments")}
        print(await link.call("tool", **args, timeout_s=CALL_S))
        await link.close()
        await made.destroy(desktop)
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("names", "plays"),
    [(("right", "off_by_one", "silent"), "model"), pytest.param(tuple(BODIES), "oracle", marks=pytest.mark.proof)],
    ids=["few", "all"],
)
async def test_right_functions_are_accepted_and_planted_faulty_ones_are_not(
    state_dir: str, tmp_path: Path, names: tuple[str, ...], plays: str
) -> None:
    out, tasks = tmp_path / "out", tmp_path / "tasks.txt"
    tasks.write_text("Change the second line\n")
    hook = tmp_path / "hooked.py"
    hook.write_text(HOOKED)
    async with StandIn(PlaysToo(recording(names)).answer) as server:
        done = await run(
            str(hook), "apis", "build", "--app", "text_editor", "--tasks", str(tasks), "--llm", server.url,
            "--model", "m", "--out", str(out), "--rounds", "0", "--json", "--trial", "text_editor",
            "--trial-by", plays,
            "--set", f"desktops.provider.state_dir={state_dir}", PYTHONPATH=os.getcwd(),
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "seen=[]" in done.stderr
    verdicts = {each["name"]: each for each in json.loads(done.stdout)}
    assert {name for name, each in verdicts.items() if each["accepted"]} == {"right"}
    assert verdicts["right"]["trial"]["mutants"] >= 3
    weighed = verdicts["right"]["weighed"]
    assert (weighed["tasks"], weighed["solved"], weighed["turns"]) == (1, [1, 1], -1)
    if "never_ends" in names:
        assert "did not end" in verdicts["never_ends"]["why"]
        assert "/etc/passwd" in verdicts["reads_others"]["why"]
    cli = ["-m", "actors.cluster.cli", "apis"]
    assert f"{MARK} = 0" in (await run(*cli, "show", str(out))).stdout
    refused = await run("-c", "import apis.catalogue", COMPUTERRL_APIS=str(out))
    assert "is not accepted" in refused.stderr
    assert (await run(*cli, "accept", str(out))).returncode == 0
    used = await run("-c", USED, state_dir, COMPUTERRL_APIS=str(out))
    assert used.stdout == "line 2 is used\n", used.stderr
    checked = await run(*cli, "check", str(out), "--json", "--set", f"desktops.provider.state_dir={state_dir}")
    assert [each["verdict"] for each in json.loads(checked.stdout)] == ["ok"], checked.stdout + checked.stderr
    (out / "api.json").write_text((out / "api.json").read_text().replace(MARK, f"{MARK}_too"))
    assert "has changed since" in (await run("-c", "import apis.catalogue", COMPUTERRL_APIS=str(out))).stderr
