"""Asks the process in which strangers' chat templates run: `chat_child.py`. This process has one, made when needed.

Invariant: whatever a folder's files do, a question is answered, or refused by a ConfigError of one line in a bounded
time.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from runtime.errors import ConfigError

START_S = 120.0  # until it runs
LOAD_S, RENDER_S = 60.0, 5.0  # of processor time, for a folder's files and for its template
BUSY = 6  # of so many programs it may be one on a processor before it is waited for no more
MOST_BYTES = 256 << 20  # of an answer: a large vocabulary with its merges
MOST_TURNS = 4  # of conversations that are tried when a folder is read
Message = dict[str, Any]


class ChatRequest(msgspec.Struct, frozen=True):
    """`messages` rendered, or with `facts` what is to be known of the template. Without either, the tokenizer."""

    folder: str
    limit_s: float
    messages: list[Message] = []
    options: dict[str, Any] = {}  # of transformers' apply_chat_template
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
        """End the process, if this one has started it."""
        with self._lock:
            self._stopped()

    def _started(self) -> Connection[bytes, bytes]:
        if self._link is not None and self._owner == os.getpid():
            return self._link
        ours, theirs = Pipe()
        path = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", ""))))
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "policy.chat_child", str(theirs.fileno())],
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
