"""Families, applications and metrics of other packages: found by entry points, refused with package and entry point."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from apis import applications, entries
from apis.tasks import registry as tasks
from apis.tasks.metrics import registry as metrics
from runtime.errors import ConfigError

TEMPLATE = Path(__file__).resolve().parents[1] / "template"
Install = Callable[[str, str, str], None]


def installed(site: Path, package: str, points: str) -> None:
    """What an installer leaves of a package beside its modules."""
    info = site / f"{package}-2.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 2.5\n")
    (info / "entry_points.txt").write_text(points)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package of one module, `other_package`, with one entry point."""

    def one(group: str, point: str, module: str) -> None:
        (tmp_path / "other_package.py").write_text(module)
        installed(tmp_path, "other-package", f"[{group}]\n{point}\n")
        entries._all.cache_clear()

    monkeypatch.syspath_prepend(tmp_path)
    others = dict(tasks.OTHERS)
    yield one
    sys.modules.pop("other_package", None)
    tasks.OTHERS.clear()
    tasks.OTHERS.update(others)
    entries._all.cache_clear()


FAMILY = """
from dataclasses import replace
from apis.tasks.families.terminal import TERMINAL_APPEND as own
FAMILY = replace(own, name={name!r}, apps=({app!r},))
"""


@pytest.mark.parametrize(
    ("point", "module", "why"),
    [
        ("mine = other_package:FAMILY", "import nowhere_at", "ModuleNotFoundError: No module named 'nowhere_at'"),
        ("mine = other_package:FAMILY", "raise RuntimeError('first\\nsecond')", "RuntimeError: first second; mend or"),
        ("mine = other_package:FAMILY", "raise SystemExit(3)", "SystemExit: 3; mend or"),
        ("mine = other_package:FAMILY", "", "has no attribute 'FAMILY'"),
        ("mine = other_package", "", r"it is a module, and no apis\.tasks\.family\.Family"),
        ("mine = other_package:FAMILY", FAMILY.format(name="calc_cell", app="terminal"), "there is a Family calc_cell"),
        ("mine = other_package:FAMILY", FAMILY.format(name="a/b", app="terminal"), "its name is 'a/b'"),
        ("mine = other_package:FAMILY", FAMILY.format(name="mine", app="paint"), "needs an application paint"),
    ],
)  # fmt: skip
def test_a_family_that_can_not_be_used_is_named_with_its_package(
    install: Install, point: str, module: str, why: str
) -> None:
    install(entries.FAMILIES, point, module)
    with pytest.raises(
        ConfigError, match=rf"package other-package 2\.5, entry point computerrl.families: mine = .*{why}"
    ):
        tasks.declared()


def test_a_family_of_another_package_comes_last_and_changes_no_suite(install: Install) -> None:
    own = list(tasks.FAMILIES)
    install(entries.FAMILIES, "mine = other_package:FAMILY", FAMILY.format(name="mine", app="terminal"))
    assert list(tasks.declared()) == [*own, "mine"]
    assert tasks.OTHERS["mine"] == "other-package 2.5"


@pytest.mark.parametrize(
    ("group", "module", "why"),
    [
        (entries.METRICS, "A = 3", r"it is a int, and no apis\.tasks\.metrics\.metric\.Declared"),
        (
            entries.METRICS,
            "from apis.tasks.metrics.registry import METRICS\nA = METRICS['exact_match']",
            "there is a Declared exact_match already",
        ),
        (entries.APPLICATIONS, "A = 3", "it is no package with a module `app`"),
    ],
)
def test_a_metric_or_application_that_can_not_be_used_is_named_likewise(
    install: Install, group: str, module: str, why: str
) -> None:
    install(group, "mine = other_package:A", module)
    with pytest.raises(ConfigError, match=rf"package other-package 2\.5, entry point {group}: mine = .*{why}"):
        metrics.declared() if group == entries.METRICS else applications.declared()


def test_a_guest_folder_takes_no_name_of_the_programs_own(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "with_guest"
    (place / "guest").mkdir(parents=True)
    (place / "__init__.py").touch()
    (place / "app.py").touch()
    install(entries.APPLICATIONS, "screen = with_guest", "")
    with pytest.raises(ConfigError, match=r"guest\.screen is taken"):
        applications.guest_files()
    sys.modules.pop("with_guest", None)


LOOK = """
import json
from apis.applications import guest_files
from apis.actions.grammar import parse
from apis.actions.gui import OPEN_APP_NAMES
from apis.catalogue import TOOLS
from apis.tasks import registry as tasks
from apis.tasks.metrics.registry import METRICS
from actors.cluster.config import suites
print(json.dumps({
    "others": tasks.OTHERS,
    "instruction": tasks.task("say_yes/train/0").instruction,
    "bundled": "say_yes" in suites.load("desktop").families,
    "own": suites.load("say_yes").trained,
    "call": str(parse("NotesTools.add(text='kiwi')", "notes")),
    "opens": OPEN_APP_NAMES[-1],
    "guest": [name for name in guest_files() if name.startswith("notes/")],
    "metric": "shouts" in METRICS,
}))
"""


@pytest.mark.slow
def test_the_template_is_found_whole(tmp_path: Path) -> None:
    groups = tomllib.loads((TEMPLATE / "pyproject.toml").read_text())["project"]["entry-points"]
    lines = [line for group, points in groups.items() for line in (f"[{group}]", *map(" = ".join, points.items()))]
    installed(tmp_path, "computerrl-template", "\n".join(lines))
    paths = os.pathsep.join((str(tmp_path), str(TEMPLATE)))
    done = subprocess.run(
        [sys.executable, "-P", "-c", LOOK], capture_output=True, text=True, check=False, env={"PYTHONPATH": paths}
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["others"] == {"say_yes": "computerrl-template 2.5"}
    assert found["instruction"].startswith("Let ")
    assert (found["bundled"], found["own"]) == (False, ["say_yes"])
    assert "NotesTools" in found["call"]
    assert found["opens"] == "notes"
    assert set(found["guest"]) == {"notes/__init__.py", "notes/application.py", "notes/functions.py"}
    assert found["metric"]
