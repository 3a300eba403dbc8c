"""Parts of task files as their JSON has them, and task files of such parts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from apis.tasks import osworld
from apis.tasks.osworld import HOME, data_url

Part = dict[str, Any]
INFEASIBLE: Part = {"func": "infeasible"}


def bring(files: Mapping[str, bytes]) -> Part:
    """A step that brings files, by their paths."""
    named = [{"url": data_url(data), "path": path} for path, data in files.items()]
    return {"type": "download", "parameters": {"files": named}}


def ran(command: str | list[str], **more: Any) -> Part:
    """A step that runs a command."""
    return {"type": "execute", "parameters": {"command": command, **more}}


def launched(*command: str) -> Part:
    """A step that starts a program."""
    return {"type": "launch", "parameters": {"command": list(command)}}


def of_file(path: str) -> Part:
    """A getter of a file below HOME."""
    return {"type": "vm_file", "path": f"{HOME}/{path}", "dest": path.rpartition("/")[2]}


def of_command(command: str | list[str], **more: Any) -> Part:
    """A getter of what a command says."""
    return {"type": "vm_command_line", "command": command, **more}


def rule(**rules: Any) -> Part:
    """An expectation that is written in the task."""
    return {"type": "rule", "rules": rules}


def loaded(**changes: Any) -> osworld.Task:
    """A task whose file has these keys besides, or in place of, the three that it needs."""
    task: Part = {"id": "a", "instruction": "Do it", "evaluator": INFEASIBLE, **changes}
    return osworld.load(json.dumps(task).encode())
