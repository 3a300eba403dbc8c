"""What actors may know of each other."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent / "actors"
ACTORS = ("desktop", "entropulse", "learner", "replay", "sampler")


@pytest.mark.slow
def test_an_actor_imports_of_another_one_only_its_messages() -> None:
    found = []
    for actor in ACTORS:
        for path in sorted((ROOT / actor).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                names = []
                if isinstance(node, ast.ImportFrom) and node.module:
                    names = [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
                elif isinstance(node, ast.Import):
                    names = [one.name for one in node.names]
                for name in names:
                    _, other, *rest = [*name.split("."), ""]
                    whole = name.startswith("actors.") and other in ACTORS and other != actor
                    if whole and not (rest and rest[0] == "messages"):
                        found.append(f"{path.relative_to(ROOT)}: {name}")
    assert found == []
