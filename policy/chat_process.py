"""Strangers' chat templates, rendered by transformers in a process of their own: `python -P -m policy.chat_process FD`.

A chat template is a program of a stranger's, and so are the files around it. The process that asks has one such child,
made when needed, and bounds it in memory and in seconds of processor time.

Invariant: whatever a folder's files do, a question is answered, or refused by a ConfigError of one line in a bounded
time.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from runtime.errors import ConfigError

START_S = 120.0  # until it runs
LOAD_S, RENDER_S = 60.0, 1.0  # of processor time, for a folder's files and for its template
BUSY = 6  # of so many programs it may be one on a processor before it is waited for no more
MOST_BYTES = 256 << 20  # of an answer: a large vocabulary with its merges
MOST_TURNS = 4  # of conversations that are tried when a folder is read
Message = dict[str, Any]


class ChatRequest(msgspec.Struct, frozen=True):
    """`messages` rendered up to an answer, or with `facts` what is to be known of the template; else the tokenizer."""

    folder: str
    limit_s: float
    messages: list[Message] = []
    facts: bool = False
    as_ids: bool = False  # in place of a text, the ids of transformers: contents are no data then


class ChatFacts(msgspec.Struct, frozen=True):
    """What a run has to know of a tokenizer and its template."""

    eos_id: int  # ends what a model learns to say
    stop_ids: list[int]
    refused: dict[str, str]  # why, by the number of questions of a conversation, with an s where it has a system text
    lead: str  # white space before an answer
    control: list[str]  # the tokens that are the template's alone


class ChatResponse(msgspec.Struct, frozen=True):
    """`error` is one line."""

    backend: str = ""  # the tokenizer as tokenizer.json has it, with what transformers makes of it
    rendered: str = ""
    ids: bytes = b""  # four bytes each
    facts: ChatFacts | None = None
    error: str = ""


def conversation(texts: Sequence[str], system: str | None = None) -> list[Message]:
    """`texts` as turns of user and assistant behind a system message, if there is one."""
    messages = [] if system is None else [{"role": "system", "content": system}]
    messages += [{"role": "assistant" if at % 2 else "user", "content": text} for at, text in enumerate(texts)]
    return messages


class ChatProcess:
    """The process and the way to it; usable from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._link: Connection[bytes, bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def response_to(self, request: ChatRequest) -> ChatResponse:
        """Raises ConfigError, without the folder's name, where it is refused or there is no answer in time."""
        with self._lock:
            link = self._started()
            try:
                link.send_bytes(msgspec.msgpack.encode(request))
                if not link.poll(BUSY * request.limit_s):
                    raise EOFError
                response = msgspec.msgpack.decode(link.recv_bytes(MOST_BYTES), type=ChatResponse)
            except BaseException as error:  # whatever it is: the next answer would be this question's
                self._stopped()
                if not isinstance(error, (EOFError, OSError, msgspec.MsgspecError)):
                    raise
                raise ConfigError(f"it takes more than {request.limit_s:g} s, or too much memory") from error

        if response.error:
            raise ConfigError(response.error)
        return response

    def close(self) -> None:
        with self._lock:
            self._stopped()

    def _started(self) -> Connection[bytes, bytes]:
        if self._link is not None and self._owner == os.getpid():
            return self._link
        ours, theirs = Pipe()
        path = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", ""))))
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "policy.chat_process", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false"},
                start_new_session=True,
            )
        self._link, self._owner = ours, os.getpid()
        try:
            if not ours.poll(START_S):
                raise EOFError
            ours.recv_bytes(1)
        except (EOFError, OSError) as error:
            self._stopped()
            raise ConfigError("the process for chat templates does not start") from error
        return ours

    def _stopped(self) -> None:
        link, process = self._link, self._process
        self._link = self._process = None
        if link is not None:
            link.close()
        if process is not None and self._owner == os.getpid():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()


PROCESS = ChatProcess()
atexit.register(PROCESS.close)


LOAD_BYTES, RENDER_BYTES = 4 << 30, 512 << 20  # of memory on top of what the process has
KEPT = 8  # tokenizers
_MARK = "Qs7Xv"  # begins a content whose place in a rendered text is looked for
_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "config.json")


@lru_cache(maxsize=KEPT)
def _loaded(folder: str, *_: tuple[int, int] | None) -> Any:
    """The tokenizer of a folder whose files have these times and sizes."""
    from transformers import AutoTokenizer

    with _memory(LOAD_BYTES):
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def _changed(file: Path) -> tuple[int, int] | None:
    """When a file was changed, and its size; None where there is none."""
    status = file.stat() if file.exists() else None
    return (status.st_mtime_ns, status.st_size) if status else None


@contextlib.contextmanager
def _memory(more: int) -> Iterator[None]:
    """Within it, the process takes at most `more` bytes on top of what it has."""
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    soft, most = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY or used + more < soft:
        resource.setrlimit(resource.RLIMIT_AS, (used + more, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, most))


def _made(tokenizer: Any, request: ChatRequest) -> ChatResponse:
    """A conversation as the template renders it, or its ids as transformers has them. Raises what a template raises."""
    made = tokenizer.apply_chat_template(
        request.messages, tokenize=request.as_ids, return_dict=False, add_generation_prompt=True
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
    special = {text for text, number in added.items() if tokenizer.added_tokens_decoder[number].special}
    used = {text for text in added if not text.isspace() and (text in template or text in rendered)}
    end = _end_of_turn(tokenizer, added)
    ends = sorted({number for number in (end, tokenizer.eos_token_id) if number is not None})
    if not ends:
        raise ValueError("the tokenizer names no end-of-turn token, and its template has none")
    return ChatFacts(
        eos_id=ends[0] if end is None else end,
        stop_ids=ends,
        refused={f"{turns}{'s' if system else ''}": reason for (turns, system), reason in why.items() if reason},
        lead=_lead(tokenizer),
        control=sorted(special | used),
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
        with contextlib.suppress(Exception):  # a template may refuse a second question
            behind = str(tokenizer.apply_chat_template(messages, tokenize=False)).partition(mark)[2].lstrip()
            if token := max((text for text in added if text and behind.startswith(text)), key=len, default=""):
                return added[token]
    return None


def _lead(tokenizer: Any) -> str:
    """White space that the template puts between what asks for an answer and the answer."""
    with contextlib.suppress(Exception):  # a template may refuse a conversation that ends with an answer
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
    return next((text for text in str(error).splitlines() if text.strip()), type(error).__name__)[:200]


def _answer(request: ChatRequest) -> ChatResponse:
    try:
        tokenizer = _loaded(request.folder, *(_changed(Path(request.folder) / name) for name in _FILES))
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
    decoder = msgspec.msgpack.Decoder(ChatRequest)
    with Connection(descriptor) as link:
        link.send_bytes(b"")
        while True:
            try:
                request = decoder.decode(link.recv_bytes())
            except EOFError:
                return
            signal.setitimer(signal.ITIMER_PROF, request.limit_s)  # its signal ends the process, whatever it does
            response = _answer(request)
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            link.send_bytes(msgspec.msgpack.encode(response))


if __name__ == "__main__":
    main(int(sys.argv[1]))
