"""Models by their names on the Hugging Face hub, in the cache that transformers uses.

Invariant: what the cache holds whole is taken as it is, and the network is not asked. What is fetched is weights,
configuration and tokenizer, never a program.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

from actors.cluster import output
from policy import tensorfiles
from runtime.errors import ConfigError

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


def named(text: str) -> HubName | None:
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
    try:
        cached = hf.snapshot_download(
            name.repo, revision=name.revision, allow_patterns=wanted, ignore_patterns=_NOT, local_files_only=True
        )
        if _whole(Path(cached), weights=weights):
            return Path(cached)
    except hf.errors.LocalEntryNotFoundError:
        pass
    output.line(f"fetching {_told(name)} from {hf.constants.ENDPOINT} to {hf.constants.HF_HUB_CACHE}", to=sys.stderr)
    if not sys.stderr.isatty():
        hf.utils.disable_progress_bars()
    try:
        found = hf.snapshot_download(
            name.repo, revision=name.revision, allow_patterns=wanted, ignore_patterns=_NOT, etag_timeout=_ASK_S
        )
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
    raise ConfigError(f"{_told(name)}: {why}")


def _whole(folder: Path, *, weights: bool) -> bool:
    """Whether the cache holds all of a model that may have been fetched in part by others."""
    if not (folder / "config.json").is_file() or not (folder / "tokenizer.json").is_file():
        return False
    return not weights or not tensorfiles.problem(folder)


def _told(name: HubName) -> str:
    return name.repo if name.revision == _NEWEST else f"{name.repo}@{name.revision}"


def _cause(error: BaseException) -> str:
    """The first line of what the hub's client found at the root."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
