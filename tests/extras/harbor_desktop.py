"""Harbor's environment as a desktop of `computerrl serve-env`: what is executed there is an answer of the agent.

`harbor run -p TASK -a AGENT -e harbor_desktop:Desktop` with the server's address in COMPUTERRL_ENV. `environment/task`
in TASK holds the desktop's task. Lines of a solution are answers, too; the verdict is the server's, whatever the tests.
"""

# ruff: noqa: ASYNC240 - files of some bytes
import json
import os
from pathlib import Path

import websockets
from harbor.environments.base import BaseEnvironment, ExecResult


class Desktop(BaseEnvironment):
    """One episode on one desktop."""

    @staticmethod
    def type() -> str:
        return "computerrl"

    def _validate_definition(self) -> None:
        self.desktop_task = (self.environment_dir / "task").read_text().strip()

    async def _say(self, kind: str, **data: object) -> None:
        await self.socket.send(json.dumps({"type": kind, "data": data}))
        answer = json.loads(await self.socket.recv())
        if answer["type"] != "observation":
            raise RuntimeError(f"serve-env: {answer['data']}")
        self.seen = answer["data"]

    async def start(self, force_build: bool) -> None:
        self.answers, self.socket = [], await websockets.connect(os.environ["COMPUTERRL_ENV"], max_size=1 << 24)
        await self._say("reset", task=self.desktop_task)

    async def stop(self, delete: bool) -> None:
        await self.socket.close()

    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None) -> ExecResult:
        solution = "/solution/solve.sh" in command and not command.startswith("chmod")
        answers = self.answers if solution else [command] if "Agent." in command else []
        for answer in answers:
            if not self.seen["done"]:
                await self._say("step", text=answer)
        return ExecResult(stdout=self.seen["observation"]["prompt"], return_code=0)

    async def upload_dir(self, source_dir, target_dir) -> None:
        if (solution := Path(source_dir, "solve.sh")).exists():
            self.answers = [line for line in solution.read_text().splitlines() if line and line[0] != "#"]

    async def upload_file(self, source_path, target_path) -> None:
        raise NotImplementedError("a desktop takes answers alone")

    async def download_dir(self, source_dir, target_dir) -> None:
        if "verifier" in str(source_dir):
            Path(target_dir, "reward.txt").write_text(str(float(self.seen["reward"] or 0)))

    async def download_file(self, source_path, target_path) -> None:
        Path(target_path).write_text(json.dumps(self.seen))
