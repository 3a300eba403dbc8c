"""Where the model that a run starts from lies: a folder, or a name on the hub. No program is fetched."""

from __future__ import annotations

import hashlib
import re
import sys
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from actors.cluster import output
from apis.prompts import Form
from policy import tensorfiles
from policy.architecture import read_architecture
from policy.chat_process import MOST_TURNS
from policy.tokenizer import Tokenizer
from runtime import disk
from runtime.errors import ConfigError

# What decides which ids a text becomes, chat form included; those that are missing count as empty.
_OF_TOKENS = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
FILES = ("config.json", "tokenizer.json")  # next to the weights, in one file or in several

BASE, CLONED = NAMES = "base", "cloned"  # models that come with the program: the base model, and it after cloning
MADE = {"smollm2": "smollm", "seeing": "seeing"}  # model folders that a target of the Makefile makes, by name


def bundled() -> Path:
    """The base model that comes with the program."""
    return Path(str(resources.files("policy"))) / "base" / "model"


def cloned() -> Path:
    """The same after cloning the main job's demonstrations (deploy/recipes/cloned.py)."""
    return Path(str(resources.files("deploy"))) / "learn"


def planned(base: str, shape: str) -> Path:
    """What a plan that starts nothing goes by: the model's folder, or `shape` where that is not on this machine.

    Of a model on the hub no weights are fetched. Raises ConfigError.
    """
    if not shape or (base and Path(base).is_dir()):
        return locate(base, weights=False)
    for folder in (Path(shape), shapes() / shape):
        if (folder / "config.json").is_file():
            return folder.resolve()
    bundled_shapes = ", ".join(sorted(one.name for one in shapes().iterdir()))
    raise ConfigError(f"model.shape {shape} has no config.json; there are {bundled_shapes}")


def shapes() -> Path:
    """The folders of shapes that come with the program."""
    return Path(str(resources.files("deploy"))) / "shapes"


def folder_of(base: str, *, weights: bool = True) -> Path:
    """Where the files of `base` are, whatever they are: a Hugging Face folder, one of `NAMES`, or a name on the hub.

    The files of a name are fetched where the cache lacks them, without `weights` where they are not wanted. Raises
    ConfigError.
    """
    folder = {BASE: bundled, CLONED: cloned}.get(base, Path(base).absolute)()
    if folder.is_dir():
        return folder.resolve()
    if "://" in base:
        raise ConfigError(f"{base}: a model at a URL has no weights here: only `eval` and `play --model` take one")
    if name := hub_name(base):
        return snapshot(name, weights=weights)
    made = f"; `make {MADE[folder.name]}` makes it" if folder.name in MADE else ""
    raise ConfigError(f"there is no model folder {folder}{made}")


def locate(base: str, *, weights: bool = True) -> Path:
    """The folder of model `base`: "" is the bundled one, else as `folder_of` finds it. Raises ConfigError."""
    folder = folder_of(base, weights=weights) if base else bundled()
    if wrong := tensorfiles.unreadable(folder):
        raise ConfigError(f"model folder {folder}: {wrong}")
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise ConfigError(f"model folder {folder} lacks {', '.join(missing)}")
    if (weights or Path(base).is_dir()) and (wrong := tensorfiles.problem(folder)):
        raise ConfigError(f"model folder {folder}: {wrong}")
    tokenizer, vocab = Tokenizer.load(folder), read_architecture(folder).vocab
    if (largest := tokenizer.largest_id) >= vocab:
        raise ConfigError(
            f"{folder}: tokenizer.json has ids up to {largest}, and config.json says vocab_size {vocab}: the tokenizer"
            " is another model's"
        )
    return folder


def refuse_form(folder: Path, form: Form) -> None:
    """Raise ConfigError where the chat template of `folder` does not make the prompts of `form`."""
    # A plan by a shape alone has no tokenizer. The compact form asks one question, which `locate` has tried.
    if form == "compact" or not (folder / "tokenizer.json").is_file():
        return
    tokenizer = Tokenizer.load(folder)
    for turns in range(1, MOST_TURNS + 1):
        if why := tokenizer.refused(turns, system=True):
            raise ConfigError(
                f"prompt.format is {form}: at step {turns} the chat template of {folder} fails: {why}; with"
                " prompt.format=compact each step is one question"
            )


def fingerprint(model: str | Path) -> str:
    """Which tokenizer a model folder has: blake2b-64 of its files, hex. Two with the same one give the same ids."""
    digest = hashlib.blake2b(digest_size=8)
    for name in _OF_TOKENS:
        path = Path(model) / name
        digest.update(hashlib.blake2b(disk.read_bytes(path, disk.MODEL) if path.is_file() else b"").digest())
    return digest.hexdigest()


_NAME = re.compile(r"(\w[\w.-]*/\w[\w.-]*)(?:@(\w[\w./-]*))?", re.ASCII)
_NEWEST = "main"
_WEIGHTS = "*.safetensors"
_NOT = ["*/*", "consolidated*"]  # other forms of the same weights
_FOLDERS = "models"  # where deploy files look for folders
_ASK_S = 10.0  # that the hub has for each answer


class HubName(NamedTuple):
    """A model of the hub."""

    repo: str  # OWNER/MODEL
    revision: str  # branch, tag or commit


def hub_name(text: str) -> HubName | None:
    """The model of the hub that OWNER/MODEL or OWNER/MODEL@REVISION means; None for a path.

    What begins with a folder that is here is a path, and so is what begins with `models`.
    """
    found = _NAME.fullmatch(text)
    if found is None or (owner := text.partition("/")[0]) == _FOLDERS or Path(owner).is_dir():
        return None
    return HubName(found[1], found[2] or _NEWEST)


def snapshot(name: HubName, *, weights: bool = True) -> Path:
    """The folder of `name` in the cache, fetched where need be, without the weights where they are not wanted.

    Raises ConfigError of one line: what is not there, may not be had, or can't be reached.
    """
    import huggingface_hub as hf

    kinds = [f"*{kind}" for kind in tensorfiles.COMPANION_KINDS] + list(tensorfiles.COMPANION_NAMES)
    wanted = [*kinds, _WEIGHTS] if weights else kinds
    asked: dict[str, Any] = {"revision": name.revision, "allow_patterns": wanted, "ignore_patterns": _NOT}
    try:
        cached = Path(hf.snapshot_download(name.repo, **asked, local_files_only=True))
        # Others may have fetched a part of it.
        if all((cached / file).is_file() for file in FILES) and not (weights and tensorfiles.problem(cached)):
            return cached
    except hf.errors.LocalEntryNotFoundError:
        pass
    output.line(f"fetching {_called(name)} from {hf.constants.ENDPOINT} to {hf.constants.HF_HUB_CACHE}", to=sys.stderr)
    if not sys.stderr.isatty():
        hf.utils.disable_progress_bars()
    try:
        found = hf.snapshot_download(name.repo, **asked, etag_timeout=_ASK_S)
    except hf.errors.GatedRepoError:
        why = "its owners let in who has accepted their terms: do so on its page, then set HF_TOKEN"
    except hf.errors.RepositoryNotFoundError:
        why = "there is no such folder, and no such model on the hub that is public or that HF_TOKEN opens"
    except hf.errors.RevisionNotFoundError:
        why = f"the hub has {name.repo}, and no revision {name.revision} of it"
    except Exception as error:  # noqa: BLE001  the errors of the HTTP library that the hub's client has, which changes
        why = (
            "there is no such folder, the cache does not hold such a model of the hub whole, and the hub can't be asked"
            f": {_cause(error)}"
        )
    else:
        return Path(found)
    raise ConfigError(f"{_called(name)}: {why}")


def _called(name: HubName) -> str:
    return name.repo if name.revision == _NEWEST else f"{name.repo}@{name.revision}"


def _cause(error: BaseException) -> str:
    """The first line of what the hub's client found at the root."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
