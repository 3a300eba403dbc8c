"""What READMEs say is there: links lead somewhere, paths, keys and commands exist, and each README keeps its length.

A stranger finds behaviours from the top README alone: the walk in deploy/results/found.md is held row by row.
"""

from __future__ import annotations

import asyncio
import importlib
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
import yaml

from actors.cluster import cli
from actors.cluster.config import deploy_files, typed_yaml
from actors.cluster.config import keys as declared
from actors.cluster.config.schema import Deploy
from actors.cluster.report import run_data

ROOT = Path(__file__).resolve().parents[1]
TOP = ROOT / "README.md"
TOPS = ("actors", "apis", "deploy", "policy", "runtime", "tests")
FILES = tuple(
    path
    for place in (ROOT.glob("*"), *((ROOT / top).rglob("*") for top in TOPS))
    for path in sorted(place)
    if path.is_file() and "__pycache__" not in path.parts
)
DOCUMENTS = [path for path in FILES if path.suffix == ".md"]
PACKAGES = [path for path in DOCUMENTS if path.name == "README.md" and path != TOP]
KEYS = {key.key for key in declared.of_deploy()}
SECTIONS = {key.split(".")[0] for key in KEYS}
MOST_WORDS = 80  # of a paragraph
LARGE = 12  # modules: a folder of as many has a README of its own
# What a run's folder or a guest's HOME holds, and ids: nothing of the source tree.
NOT_OF_THE_TREE = re.compile(
    r"(?:\d|/|~|\.|runs/|[\d/]*[A-Z]|family/split|apis\.|run\.json|deploy\.yaml|desktop/\d|desktop-\d|ledger\.sqlite"
    r"|segments/|logs/|tensorboard/|checkpoints/|weights/LINEAGE|kept/|model\.safetensors|config\.json|RUN)"
)
ENDING = re.compile(r"\.(py|md|ya?ml|sh|txt|json|js|sqlite|safetensors|parquet|gz|png|jpg|patch|toml)$")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(path: Path) -> str:
    return FENCE.sub("", path.read_text())


def spans(path: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(path))


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def folder(path: Path) -> str:
    return named(path.parent)


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_links_lead_somewhere(path):
    for target in LINK.findall(path.read_text()):
        if "://" in target:
            continue
        where, _, anchor = target.partition("#")
        found = (path.parent / where).resolve() if where else path
        assert found.exists(), f"{target} leads nowhere"
        assert not anchor or anchor in anchors(found), f"{target}: there is no such heading"


def looks_like_a_path(span: str) -> bool:
    plain = re.fullmatch(r"[\w./*\[\]-]+", span) is not None
    return plain and (ENDING.search(span) is not None or "/" in span) and not NOT_OF_THE_TREE.match(span)


def in_the_tree(span: str, path: Path) -> bool:
    """Whether it is a path from the document's folder or one above it, or a bare name that the document places."""
    if any(any(above.glob(span)) for above in (path.parent, *path.parent.parents) if above.is_relative_to(ROOT)):
        return True
    placed = {Path(other).name for other in spans(path) if "/" in other}
    return "/" not in span and (span in placed or any(path.parent in one.parents for one in FILES if one.name == span))


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_paths_exist(path):
    missing = [span for span in spans(path) if looks_like_a_path(span) and not in_the_tree(span, path)]
    assert not missing, f"no such path: {missing}"


def said_key(span: str) -> str | None:
    """The key that a span like `a.b` or `a.b: 1` names."""
    found = re.match(r"([a-z_]+(?:\.[a-z_]+)+)(?:: .*|=.*)?$", span)
    return found[1] if found and found[1].split(".")[0] in SECTIONS and not ENDING.search(found[1]) else None


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_keys_exist(path):
    said = [key for span in spans(path) if (key := said_key(span))]
    said += re.findall(r"--set ([a-z_.]+)=", path.read_text())
    for key in said:
        known = key in KEYS or any(one.startswith((f"{key}.", f"{key}[]")) for one in KEYS)
        assert known, f"there is no key {key}"


def command_lines(path: Path) -> list[list[str]]:
    """The words after `computerrl` in the lines of shell blocks."""
    lines = [line for body in blocks(path, "sh") for line in body.splitlines()]
    found = [re.search(r"(?:^|\| )(?:\.venv/bin/)?computerrl (.*)", line) for line in lines]
    return [shlex.split(match[1], comments=True) for match in found if match]


def blocks(path: Path, language: str) -> list[str]:
    return [body for found, body in FENCE.findall(path.read_text()) if found == language]


@cache
def flags() -> set[str]:
    """The flags of all commands and their verbs."""
    known, parsers = set[str](), [cli.build_parser()]
    for parser in parsers:
        for action in parser._actions:
            known.update(action.option_strings)
            parsers += action.choices.values() if isinstance(action.choices, dict) else ()
    return known


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_commands_exist(path):
    for words in command_lines(path):
        _, rest = cli.build_parser().parse_known_args(words)
        assert not rest, f"computerrl {' '.join(words)}: unknown {rest}"
    for command, more in re.findall(r"`computerrl ([a-z][a-z-]+)([^`\n]*)`", prose(path)):
        assert command in cli.COMMANDS
        assert flags() >= set(re.findall(r"--[a-z-]+", more)), f"computerrl {command}{more}"
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:`|^)make ([a-z-]+)", path.read_text(), re.MULTILINE)) <= targets


def test_lengths():
    assert len(TOP.read_text().splitlines()) <= 250
    assert len(TOP.read_bytes()) <= 20_480
    for path in PACKAGES:
        assert 20 <= len(path.read_text().splitlines()) <= 60, named(path)


def paragraphs(path: Path) -> list[str]:
    """Paragraphs and entries of lists, without code and tables."""
    parts = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) |#|\|)", FENCE.sub("\n\n", path.read_text()))
    return [part.strip() for part in parts if part.strip() and not part.lstrip().startswith("|")]


@pytest.mark.parametrize("path", [TOP, *PACKAGES], ids=named)
def test_a_long_paragraph_is_steps_or_a_list(path):
    assert not [part[:80] for part in paragraphs(path) if len(part.split()) > MOST_WORDS]


def test_the_deploy_file_for_one_gpu_is_planned(tmp_path):
    (text,) = blocks(ROOT / "deploy/one-gpu.md", "yaml")
    (file := tmp_path / "mine.yaml").write_text(text.replace("set: my-tasks", "set: files"))
    deploy, _ = deploy_files.load(str(file), [])
    assert (deploy.learner.lora.rank, deploy.prompt.format, deploy.run.trackers) == (32, "published", ("wandb",))


def test_large_folders_have_a_readme():
    modules = [path for path in FILES if path.suffix == ".py" and not named(path).startswith("tests")]
    sizes = {place: sum(path.parent == place for path in modules) for place in {path.parent for path in modules}}
    lacking = [named(place) for place, size in sizes.items() if size >= LARGE and not (place / "README.md").exists()]
    assert not lacking


def test_every_package_readme_is_reached():
    """From the top README by links from page to page."""
    reached, open_ = {TOP}, [TOP]
    while open_:
        page = open_.pop()
        for target in LINK.findall(page.read_text()):
            found = (page.parent / target.partition("#")[0]).resolve()
            if found.suffix == ".md" and found.exists() and found not in reached:
                reached.add(found)
                open_.append(found)
    assert set(DOCUMENTS) <= reached


def test_top_names_no_commit_and_no_processor_time():
    text = TOP.read_text()
    assert not re.search(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{7,40}\b", text)
    assert not re.search(r"CPU-?\s?seconds?", text, re.IGNORECASE)


def test_the_deploy_file_is_good():
    (text,) = blocks(TOP, "yaml")
    assert len(text.splitlines()) == 18
    assert isinstance(typed_yaml.build(yaml.safe_load(text), Deploy, source="README.md"), Deploy)


def test_the_example_actor_runs(tmp_path, monkeypatch):
    (text,) = blocks(ROOT / "runtime/README.md", "python")
    imports = (
        "from pathlib import Path\nfrom runtime.actor import Actor, handles\n"
        "from runtime.messaging.message import Message, Request\nfrom runtime.system import ActorSpec, ActorSystem\n"
    )
    (tmp_path / "readme_counter.py").write_text(imports + text)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("readme_counter")
    assert asyncio.run(module.main(tmp_path / "run")) == 5


@cache
def walk() -> list[tuple[str, list[str], str, str]]:
    rows = []
    for line in (ROOT / "deploy/results/found.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and "`" in cells[1]:
            (file,), (function,) = (re.findall(r"`([^`]+)`", cell) for cell in cells[2:])
            rows.append((cells[0], re.findall(r"`([^`]+)`", cells[1]), file, function))
    return rows


def test_a_stranger_finds_twenty_behaviours():
    assert len(walk()) >= 20
    for question, pages, file, function in walk():
        page = TOP
        for name in pages:
            following = ROOT / name / "README.md"
            assert following in {(page.parent / target).resolve() for target in LINK.findall(page.read_text())}, (
                question
            )
            page = following
        said = {(above / span) for span in spans(page) for above in (page.parent, ROOT)}
        assert ROOT / file in said, f"{question}: {named(page)} does not name {file}"
        assert re.search(rf"\b(def|class) {function}\b", (ROOT / file).read_text()), f"{question}: no {function}"


def column(path: Path, header: str, number: int = 0) -> set[str]:
    """What stands in back-ticks in a column of the table below `header`."""
    rows = path.read_text().split(f"{header}\n", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    return {span for row in rows for span in re.findall(r"`([^`]+)`", row.strip("|").split(" | ")[number])}


def test_tables_are_whole():
    assert column(ROOT / "deploy/README.md", "| bundled file | what it is |") == set(deploy_files.bundled())
    invariants = {path.stem.removeprefix("test_") for path in (ROOT / "tests/invariants").glob("test_*.py")}
    assert column(ROOT / "tests/README.md", "| invariant | says |") == invariants
    said = " ".join(column(ROOT / "actors/cluster/README.md", "| command | what it does |"))
    assert set(cli.COMMANDS) <= set(re.findall(r"[a-z-]+", said))


def test_events_are_declared():
    source = "".join(path.read_text() for path in FILES if path.suffix == ".py" and "tests" not in path.parts)
    events = set(re.findall(r'declare\w*\(\s*"(\w+)"', source))
    said = column(ROOT / "actors/desktop/README.md", "| what | events |", 1)
    assert len(said) > 10
    assert said <= events


@pytest.mark.parametrize(
    ("row", "runs"),
    [
        ("observation 2, seed 0", "observation-2-0"),
        ("the same with observation 1", "local-[012]"),
        ("cloning alone", "bc-alone-*"),
    ],
)
def test_results_are_those_of_the_figures(row, runs):
    """The first and the last round of the runs, meant over seeds, are what the table says."""
    (line,) = [line for line in TOP.read_text().splitlines() if line.startswith("| ") and row in line]
    read = [run_data.read_file(path) for path in (ROOT / "deploy/results").glob(f"{runs}.figures.gz")]
    ends = [[run.rounds[place].summary.whole.all.value for run in read] for place in (0, -1)]
    means = [sum(values) / len(values) for values in ends]
    said = [float(cell) for cell in line.split("|") if re.fullmatch(r" 0\.\d+ ", cell)]
    assert said == pytest.approx(means[-len(said) :], abs=6e-4)
    gain = re.search(r"\+([\d.]+) points", line)
    assert gain is None or float(gain[1]) == pytest.approx(100 * (means[1] - means[0]), abs=0.06)


@cache
def words_of_the_source() -> frozenset[str]:
    read = (path for path in FILES if path.suffix in (".py", ".yaml", ".sh", ".js") and path != Path(__file__))
    stems = {part for path in FILES for part in (path.stem, *path.parent.parts)}
    return frozenset(stems.union(*(re.findall(r"\w+", path.read_text()) for path in read)))


@pytest.mark.parametrize("path", [TOP, *PACKAGES], ids=named)
def test_names_exist(path):
    """A class, function, constant, event or value that a page names is still called so."""
    said = {span for span in spans(path) if re.fullmatch(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", span)}
    names = {name for span in said for name in span.split(".") if "_" in name or not name.islower()}
    for name, file in re.findall(r"`(\w+)` (?:in|of) `([\w/.]+\.py)`", prose(path)):
        found = next(above / file for above in (path.parent, ROOT) if (above / file).exists())
        assert re.search(rf"\b{name}\b", found.read_text()), f"there is no {name} in {file}"
    examples = {"RUN", "FILE", "LINEAGE", "STEP", "NAME", "ACTOR"}
    assert names - examples <= words_of_the_source()
