"""Transformers' tokenizer of a model folder, in a process of its own: `python -P -m policy.chat_child FD`.

A chat template is a program of a stranger's, and so are the files around it. Whatever they do is bounded here in time
and memory. `chat_process.py` asks.

Invariant: a request is answered within its seconds of processor time, or this process ends.
"""

from __future__ import annotations

import inspect
import resource
import signal
import sys
from array import array
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from policy.chat_process import MOST_TURNS, ChatFacts, ChatRequest, ChatResponse, conversation

LOAD_BYTES, RENDER_BYTES = 4 << 30, 512 << 20  # of memory on top of what the process has
KEPT = 8  # tokenizers
_MARK = "Qs7Xv"  # begins a content whose place in a rendered text is looked for
_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "config.json")


class _Tokenizers:
    """The tokenizers of the last folders that were asked for."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], Any] = {}

    def of(self, folder: str) -> Any:
        from transformers import AutoTokenizer

        key = (folder, *((Path(folder) / name).exists() and _changed(Path(folder) / name) for name in _FILES))
        if key not in self._kept:
            with _memory(LOAD_BYTES):
                found = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            if len(self._kept) == KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = found
        return self._kept[key]


def _changed(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_mtime_ns, found.st_size


class _memory:  # noqa: N801 - reads as a word
    """Within it, the process takes so many bytes more, and no others."""

    def __init__(self, more: int) -> None:
        self._more = more

    def __enter__(self) -> None:
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + self._more, resource.RLIM_INFINITY))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _made(tokenizer: Any, request: ChatRequest) -> ChatResponse:
    """A conversation as the template renders it, or its ids as transformers has them. Raises what a template raises."""
    options = dict(request.options)
    variables = options.pop("chat_template_kwargs", None) or {}
    taken = inspect.signature(tokenizer.apply_chat_template).parameters
    if wrong := next((name for name in variables if name in taken), ""):
        raise ValueError(f"chat_template_kwargs: {wrong} is no variable of the template")
    made = tokenizer.apply_chat_template(
        request.messages, tokenize=request.as_ids, return_dict=False, **options, **variables
    )
    return ChatResponse(ids=array("I", made).tobytes()) if request.as_ids else ChatResponse(rendered=str(made))


def _facts(tokenizer: Any) -> ChatFacts:
    """What a run has to know of a tokenizer and its template. Raises ValueError where it can't serve a chat."""
    template = tokenizer.chat_template
    if not template:
        raise ValueError("the tokenizer has no chat template")
    if not isinstance(template, str):
        raise ValueError(f"the tokenizer has several chat templates and none is the default: {', '.join(template)}")
    added = {token.content: number for number, token in tokenizer.added_tokens_decoder.items()}
    shapes = [(turns, system) for turns in range(1, MOST_TURNS + 1) for system in (False, True)]
    why, rendered = {}, ""
    for turns, system in shapes:
        try:
            text = _rendered(tokenizer, turns, system=system)
        except Exception as error:  # noqa: BLE001 - a template is a program of a stranger's
            why[turns, system] = line(error)
        else:
            rendered += text
            why[turns, system] = _dropped(text, turns, system=system)
    special = {one for one in added if tokenizer.added_tokens_decoder[added[one]].special}
    said = {one for one in added if not one.isspace() and (one in template or one in rendered)}
    end = _end_of_turn(tokenizer, added)
    ends = sorted({number for number in (end, tokenizer.eos_token_id) if number is not None})
    if not ends:
        raise ValueError("the tokenizer names no end-of-turn token, and its template has none")
    return ChatFacts(
        eos_id=ends[0] if end is None else end,
        stop_ids=ends,
        refused={f"{turns}{'s' if system else ''}": said for (turns, system), said in why.items() if said},
        lead=_lead(tokenizer),
        control=sorted(special | said),
    )


def _rendered(tokenizer: Any, turns: int, *, system: bool) -> str:
    marks = [f"{_MARK}{number}x" for number in range(2 * turns - 1)]
    messages = conversation(marks, f"{_MARK}system" if system else None)
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


def _dropped(text: str, turns: int, *, system: bool) -> str:
    marks = [f"{_MARK}{number}x" for number in range(2 * turns - 1)] + [f"{_MARK}system"] * system
    missing = next((mark for mark in marks if mark not in text), "")
    who = "the system message" if missing.endswith("system") else "a message's content"
    return f"the chat template drops or rewrites {who}" if missing else ""


def _end_of_turn(tokenizer: Any, added: dict[str, int]) -> int | None:
    """The token that the template puts behind an answer, if it is one. GLM's is that of the next speaker."""
    mark = f"{_MARK}1x"
    for count in (3, 2):
        messages = conversation([f"{_MARK}{number}x" for number in range(count)])
        with suppress(Exception):  # a template may refuse a second question
            behind = str(tokenizer.apply_chat_template(messages, tokenize=False)).partition(mark)[2].lstrip()
            if found := max((one for one in added if one and behind.startswith(one)), key=len, default=""):
                return added[found]
    return None


def _lead(tokenizer: Any) -> str:
    """White space that the template puts between what asks for an answer and the answer."""
    with suppress(Exception):  # a template may refuse a conversation that ends with an answer
        asked = _rendered(tokenizer, 1, system=False)
        answer = conversation([f"{_MARK}0x", f"{_MARK}1x"])
        ended = str(tokenizer.apply_chat_template(answer, tokenize=False))
        lead = ended.removeprefix(asked).partition(f"{_MARK}1x")[0]
        return lead if ended.startswith(asked) and not lead.strip() else ""
    return ""


def line(error: BaseException) -> str:
    """The first line of an error's text, 200 characters of it."""
    if isinstance(error, MemoryError):
        return "it needs too much memory"
    return next((one for one in str(error).splitlines() if one.strip()), type(error).__name__)[:200]


def _answer(tokenizers: _Tokenizers, request: ChatRequest) -> ChatResponse:
    try:
        tokenizer = tokenizers.of(request.folder)
    except Exception as error:  # noqa: BLE001 - whatever a stranger's files make the library raise
        return ChatResponse(error=line(error))
    try:
        if not request.messages and not request.facts:
            return ChatResponse(backend=tokenizer.backend_tokenizer.to_str())
        with _memory(RENDER_BYTES):
            if request.facts:
                return ChatResponse(facts=_facts(tokenizer))
            return _made(tokenizer, request)
    except Exception as error:  # noqa: BLE001 - a template is a program of a stranger's
        return ChatResponse(error=line(error))


def main(descriptor: int) -> None:
    """Answer requests until the other end closes."""
    sys.modules["torch"] = None  # type: ignore[assignment] # a tokenizer needs none, and it takes seconds and memory
    import transformers

    transformers.logging.set_verbosity_error()
    tokenizers, decoder = _Tokenizers(), msgspec.msgpack.Decoder(ChatRequest)
    with Connection(descriptor) as link:
        link.send_bytes(b"")
        while True:
            try:
                request = decoder.decode(link.recv_bytes())
            except EOFError:
                return
            signal.setitimer(signal.ITIMER_PROF, request.limit_s)  # its signal ends the process, whatever it does
            response = _answer(tokenizers, request)
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            link.send_bytes(msgspec.msgpack.encode(response))


if __name__ == "__main__":
    main(int(sys.argv[1]))
