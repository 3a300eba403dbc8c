"""Text to token ids and back.

Invariant: content never yields a special token, whatever it says, nor together with what a template puts next to it.

Our own models use five special tokens and the chat form `<|user|> prompt <|end|> <|assistant|> response <|end|>`, turn
after turn, behind `<|system|> text <|end|>` where there is a system text. Any other Hugging Face folder is served
through its own chat template, by transformers in a process of its own. What it renders is cut at control tokens alone.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from array import array
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from policy import chat_process
from policy.architecture import end_ids
from policy.pictures import PictureStyle, picture_ids, style_of
from runtime import disk
from runtime.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence


PAD, END, USER, ASSISTANT, SYSTEM = SPECIAL_TOKENS = ("<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>")

_CUTS = r"[A-Za-z]+|\d{1,2}|[^A-Za-z0-9]+"  # the pattern of the bundled models
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)

# Each text is encoded by itself: the library's threads would gain nothing, and it warns of every fork with them.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

_ANCHOR = "\n"  # a text behind it does not begin a text
_SAMPLE, _SYSTEM = "Hello there,\n\tit is   caf\u00e9-time: f(x) = 2**10; \u65e5\u672c", "Be kind.\n"  # contents to try


class PromptPicture(NamedTuple):
    """A picture in the newest turn of a prompt."""

    size: tuple[int, int]  # pixels, width and height
    first: bool  # before the turn's text, or behind it


_NO_PICTURE = (tuple[int, ...](), True)  # ids, and whether they come before the newest turn's text
Exchange = tuple[str, str]  # an earlier turn of the user, and the assistant's answer
_FRESH = 200  # characters by which the newest content is known
_KEPT = 1024  # texts whose ids are kept


class _TextIds:
    """Texts to ids, four bytes each in this machine's byte order; safe to share between threads.

    `before` is a token of its own: texts have the ids that they have behind it, if it is not "". What is asked for by
    `again` is kept: it is in many prompts.
    """

    def __init__(self, tokenizer: Backend, before: str = "") -> None:
        self._tokenizer, self.before = tokenizer, before
        self.again = lru_cache(maxsize=_KEPT)(self.once)

    def once(self, text: str) -> bytes:
        """The ids of a text without surrogates."""
        # Unlike `encode` it lets other threads run, and makes no offsets.
        (made,) = self._tokenizer.encode_batch_fast([self.before + text], add_special_tokens=False)
        return array("I", made.ids[bool(self.before) :]).tobytes()


class _Control(NamedTuple):
    """A control token; some take the white space around it with them."""

    id: int
    lstrip: bool
    rstrip: bool


_PICTURE = _Control(-1, lstrip=False, rstrip=False)  # the place of a picture's ids


class RenderedIds:
    """Ids of the conversations of one tokenizer; safe to share between threads."""

    def __init__(self, backend: str, control: Sequence[str]) -> None:
        state = json.loads(backend)
        named = {token["content"]: token for token in state["added_tokens"]}
        self._control = {
            text: _Control(named[text]["id"], named[text]["lstrip"], named[text]["rstrip"]) for text in control
        }
        for text in control:  # no text makes a special token where specials are encoded as text
            named[text]["special"] = True
        self.content = Backend.from_str(json.dumps(state))
        self.content.encode_special_tokens = True
        self.content.no_padding()
        self.content.no_truncation()
        self._ids = frozenset(token.id for token in self._control.values())
        longest_first = sorted(control, key=len, reverse=True)
        tokens = "|".join(map(re.escape, longest_first)) or "(?!)"
        # What a content says of a control token goes through the template under a random name.
        self._name = f"q{secrets.token_hex(8)}x"
        self._in_content = re.compile(tokens)
        self._in_rendered = re.compile(rf"({self._name}\d+z|{tokens})")
        self._begins = {text[:at] for text in control for at in range(1, len(text))}
        self._ends = {text[at:] for text in control for at in range(1, len(text))}
        self._longest = max(map(len, control), default=0)
        self.largest_id = max(self.content.get_vocab(with_added_tokens=True).values(), default=-1)
        # Some tokenizers put a space in front of a text, but not of one behind a token.
        before = f"q{secrets.token_hex(8)}y"
        self.content.add_tokens([AddedToken(before, normalized=False, special=False)])
        same = all(self._encoded(before + text)[1:] == self._encoded(text) for text in ("x", " x", "\n"))
        self._texts = _TextIds(self.content, "" if same else before)

    def hidden(self, text: str, names: list[str]) -> str:
        """A content as it goes through the template; what was hidden in it is put behind `names`."""

        def named(token: str) -> str:
            names.append(token)
            return f"{self._name}{len(names) - 1}z"

        text = self._in_content.sub(lambda match: named(match[0]), text)
        # The ends as well: they might complete what the template or the next content says.
        for size in range(min(self._longest, len(text)), 0, -1):
            if text[-size:] in self._begins:
                text = text[:-size] + named(text[-size:])
                break
        for size in range(min(self._longest, len(text)), 0, -1):
            if text[:size] in self._ends:
                return named(text[:size]) + text[size:]
        return text

    def place(self, names: list[str]) -> str:
        """What goes through the template in place of a picture; it is put behind `names`."""
        names.append("")
        return f"{self._name}{len(names) - 1}z"

    def ids(self, rendered: str, names: Sequence[str], newest: str = "", picture: Sequence[int] = ()) -> array[int]:
        """The ids of what a template made of hidden contents. `newest` is the content that no other prompt has.

        `picture` are the ids of the picture that has a `place`.
        """
        pieces: list[str | _Control] = [""]
        for piece in self._in_rendered.split(rendered):
            if control := self._control.get(piece):
                pieces += [control, ""]
            elif piece.startswith(self._name) and not self._shown(piece, names):
                pieces += [_PICTURE, ""]
            else:
                pieces[-1] = str(pieces[-1]) + self._shown(piece, names)
        for at, (left, right) in enumerate(pairwise(pieces)):
            if isinstance(left, _Control) and left.rstrip:
                pieces[at + 1] = str(right).lstrip()
            if isinstance(right, _Control) and right.lstrip:
                pieces[at] = str(left).rstrip()
        fresh = newest.strip()[:_FRESH]
        ids = array("I")
        for at, piece in enumerate(pieces):
            if isinstance(piece, _Control):
                ids.extend(picture if piece is _PICTURE else [piece.id])
            elif piece:
                ids.frombytes(self._text(piece, first=at == 0, again=not fresh or fresh not in piece))
        return ids

    def _shown(self, piece: str, names: Sequence[str]) -> str:
        if not piece.startswith(self._name):
            return piece
        number = piece.removeprefix(self._name).removesuffix("z")
        return names[int(number)] if number.isdecimal() and int(number) < len(names) else piece

    def _text(self, text: str, *, first: bool, again: bool) -> bytes:
        if first and self._texts.before:
            ids = array("I", self._encoded(text)).tobytes()
        else:
            ids = self._texts.again(text) if again else self._texts.once(text)
        if self._ids.isdisjoint(memoryview(ids).cast("I")):
            return ids
        # A unigram model makes a control token of its text alone: the text is broken then. What stays is the token for
        # what the model does not know.
        broken = self._in_content.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)
        return ids if broken == text else self._text(broken, first=first, again=again)

    def _encoded(self, text: str) -> list[int]:
        return self.content.encode(text, add_special_tokens=False).ids


class _OwnForm:
    """The chat form of the models built here."""

    def __init__(self, backend: Backend) -> None:
        vocabulary = backend.get_vocab(with_added_tokens=True)
        _, self.eos_id, self._user, self._assistant, self._system = (vocabulary[token] for token in SPECIAL_TOKENS)
        self.stop_ids: tuple[int, ...] = (self.eos_id,)
        self.largest_id = max(vocabulary.values())
        self.lead = ""
        self._texts = _TextIds(backend)

    def prompt(
        self, turns: Sequence[str], system: str | None, seen: tuple[Sequence[int], bool] = _NO_PICTURE
    ) -> array[int]:
        contents = [] if system is None else [(self._system, self._texts.again(system))]
        for number, text in enumerate(turns):
            content = self._texts.once(text) if number == len(turns) - 1 else self._texts.again(text)
            contents.append((self._assistant if number % 2 else self._user, content))
        ids, (picture, first) = array("I"), seen
        for number, (speaker, content) in enumerate(contents, 1):
            ids.append(speaker)
            if first and number == len(contents):
                ids.extend(picture)
            ids.frombytes(content)
            if not first and number == len(contents):
                ids.extend(picture)
            ids.append(self.eos_id)
        ids.append(self._assistant)
        return ids


class _TemplateForm:
    """A foreign model's chat template, rendered by transformers, with contents as data."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        backend = self._asked(
            chat_process.ChatRequest(self._folder, chat_process.LOAD_S), "the tokenizer's files can't be read"
        ).backend
        facts = self._asked(chat_process.ChatRequest(self._folder, chat_process.RENDER_S, facts=True)).facts
        assert facts is not None, "a request for facts is answered by them"
        try:
            self._rendered = RenderedIds(backend, facts.control)
        except Exception as error:  # the library raises nothing narrower
            raise ConfigError(f"{folder}: its tokenizer can't be used: {chat_process.line(error)}") from error
        self.content, self.lead, self.eos_id = self._rendered.content, facts.lead, facts.eos_id
        self.largest_id = self._rendered.largest_id
        self.stop_ids = tuple(sorted({*facts.stop_ids, *end_ids(folder)}))
        refused, shapes = dict(facts.refused), range(1, chat_process.MOST_TURNS + 1)
        self.folded = any(refused.get(f"{turns}s") and not refused.get(str(turns)) for turns in shapes)
        for turns in shapes:
            for key, system in ((str(turns), None), (f"{turns}s", _SYSTEM)):
                if not refused.get(key) and self._differs(turns, system):
                    refused[key] = "contents do not become the ids that transformers makes of them"
        self.refused = refused
        if why := refused.get("1"):
            raise ConfigError(f"{folder}: its chat template can't render a question: {why}")

    def prompt(
        self, turns: Sequence[str], system: str | None, seen: tuple[Sequence[int], bool] = _NO_PICTURE
    ) -> array[int]:
        if self.folded and system is not None:
            turns, system = (f"{system}\n\n{turns[0]}", *turns[1:]), None
        return self.ids(chat_process.conversation(turns, system), seen)

    def ids(self, messages: list[chat_process.Message], seen: tuple[Sequence[int], bool] = _NO_PICTURE) -> array[int]:
        """The ids of any conversation, up to an answer. Raises ConfigError."""
        names: list[str] = []
        hidden = [{**message, "content": self._rendered.hidden(message["content"], names)} for message in messages]
        picture, first = seen
        if picture:
            place, text = self._rendered.place(names), hidden[-1]["content"]
            hidden[-1]["content"] = place + text if first else text + place
        rendered = self._asked(chat_process.ChatRequest(self._folder, chat_process.RENDER_S, hidden)).rendered
        return self._rendered.ids(rendered, names, messages[-1]["content"], picture)

    def _differs(self, turns: int, system: str | None) -> bool:
        """Whether contents without control tokens have other ids than those of transformers."""
        texts = [f"{number}. {_SAMPLE}" for number in range(2 * turns - 1)]
        messages = chat_process.conversation(texts, system)
        theirs = self._asked(chat_process.ChatRequest(self._folder, chat_process.RENDER_S, messages, as_ids=True)).ids
        return self.ids(messages).tobytes() != theirs

    def _asked(
        self, request: chat_process.ChatRequest, wrong: str = "the chat template fails"
    ) -> chat_process.ChatResponse:
        try:
            return chat_process.PROCESS.response_to(request)
        except ConfigError as error:
            raise ConfigError(f"{self._folder}: {wrong}: {error}") from error


def _template_of(folder: Path) -> object:
    """The chat template that the files of `folder` name, if any. Raises ConfigError where they can't be read."""
    config = folder / "tokenizer_config.json"
    try:
        if (alone := folder / "chat_template.jinja").exists():
            return disk.read_bytes(alone, disk.MODEL).decode()
        return json.loads(disk.read_bytes(config, disk.MODEL)).get("chat_template") if config.exists() else None
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{folder}: its chat template can't be read: {chat_process.line(error)}") from error


def _plain(content: Backend) -> bool:
    """Whether a text is cut as the models built here cut it: other ways may cost any time and memory."""
    state = json.loads(content.to_str())
    cuts = state["pre_tokenizer"] or {}
    patterns = [part["pattern"] for part in cuts.get("pretokenizers", [cuts]) if part.get("type") == "Split"]
    kinds = {part.get("type") for part in cuts.get("pretokenizers", [cuts])}
    return state["normalizer"] is None and kinds <= {"Split", "ByteLevel"} and patterns in ([], [{"Regex": _CUTS}])


def _sound(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


class Tokenizer:
    """A loaded tokenizer, safe to share between threads; cheap to call where it is `own`."""

    def __init__(self, content: Backend, form: _OwnForm | _TemplateForm, pictures: PictureStyle | None = None) -> None:
        self._content = content
        self.pictures = pictures  # how the folder's model takes them; None where it reads text alone
        self._form = form
        anchor = content.encode(_ANCHOR, add_special_tokens=False).ids
        behind = content.encode(f"{_ANCHOR}x", add_special_tokens=False).ids
        # Some tokenizers put a space before a text, which an answer behind a prompt does not have.
        self._anchor = anchor if behind != [*anchor, *content.encode("x", add_special_tokens=False).ids] else []

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read `tokenizer.json` of a Hugging Face folder. Raises ConfigError when it can't serve a chat."""
        folder = Path(folder)
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ConfigError(f"{path} is missing: not a Hugging Face folder with a fast tokenizer")
        try:
            content = Backend.from_str(path.read_text(encoding="utf-8"))
        except Exception as error:  # the library raises nothing narrower
            raise ConfigError(f"{path} is no tokenizer: {chat_process.line(error)}") from error
        pictures = style_of(folder) if (folder / "config.json").is_file() else None
        own = all(content.token_to_id(token) is not None for token in SPECIAL_TOKENS) and _plain(content)
        form = None if own and _template_of(folder) in (None, CHAT_TEMPLATE) else _TemplateForm(folder)
        if form is not None:
            return cls(form.content, form, pictures)
        content.encode_special_tokens = True
        content.no_padding()
        content.no_truncation()
        return cls(content, _OwnForm(content), pictures)

    @property
    def own(self) -> bool:
        """Whether this is the vocabulary and the chat form of the models built here."""
        return isinstance(self._form, _OwnForm)

    @property
    def eos_id(self) -> int:
        """The end-of-turn token: ends every response, stops generation."""
        return self._form.eos_id

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """What the model may end an answer with: the template's end of a turn, and those that the folder names."""
        return self._form.stop_ids

    @property
    def largest_id(self) -> int:
        """The largest id that a text can become; -1 without any id."""
        return self._form.largest_id

    def refused(self, turns: int, *, system: bool) -> str:
        """Why no conversation of so many questions can be made, four at most; "" where it can."""
        if isinstance(self._form, _OwnForm):
            return ""
        return self._form.refused.get(f"{turns}s" if system and not self._form.folded else str(turns), "")

    @property
    def folds_system(self) -> bool:
        """Whether a system text goes in front of the first question, because the template has no place for it."""
        return isinstance(self._form, _TemplateForm) and self._form.folded

    def encode(self, text: str) -> list[int]:
        """Content to ids without any special token. A lone surrogate is written out as its escape first."""
        return self._content.encode(_sound(text), add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Ids to text, special tokens shown by name; bytes that are no UTF-8 become U+FFFD."""
        return str(self._content.decode(list(ids), skip_special_tokens=False))

    def prompt_ids(self, user_text: str, system: str | None = None, earlier: Sequence[Exchange] = ()) -> list[int]:
        """The prompt up to and including the token after which the model answers, behind `earlier` turns.

        Raises ConfigError where the model's template makes none of it.
        """
        return self.packed_prompt(user_text, system, earlier).tolist()

    def packed_prompt(
        self,
        user_text: str,
        system: str | None = None,
        earlier: Sequence[Exchange] = (),
        seen: PromptPicture | None = None,
    ) -> array[int]:
        """The same, four bytes an id, with a picture in the newest turn where one is `seen`."""
        picture = self._picture(seen)
        turns = [_sound(text) for exchange in earlier for text in exchange]
        turns.append(_sound(user_text))
        return self._form.prompt(turns, None if system is None else _sound(system), picture)

    def _picture(self, seen: PromptPicture | None) -> tuple[Sequence[int], bool]:
        if seen is None:
            return _NO_PICTURE
        if self.pictures is None:
            raise ConfigError("the model reads text alone, and is shown a picture")
        return picture_ids(*seen.size, self.pictures), seen.first

    def pad_in(self, ids: array[int]) -> int:
        """The index of a picture's first pad in the ids of a prompt; 0 without a picture. No text makes a pad."""
        return ids.index(self.pictures.pad_id) if self.pictures and self.pictures.pad_id in ids else 0

    def chat_ids(self, messages: Sequence[tuple[str, str]], seen: PromptPicture | None = None) -> list[int]:
        """The ids of messages, each a role and a text, up to an answer; the last one's picture is `seen`.

        Raises ConfigError.
        """
        spoken = [{"role": role, "content": _sound(text)} for role, text in messages]
        if isinstance(self._form, _TemplateForm):
            return self._form.ids(spoken, self._picture(seen)).tolist()
        return self._form.prompt(*_turns_of(spoken), self._picture(seen)).tolist()

    async def close(self) -> None:
        """A host closes what its actors share; nothing is open here."""

    def response_ids(self, text: str) -> list[int]:
        """A response as the model should emit it behind its prompt: its ids and the end-of-turn token."""
        text, anchor = self._form.lead + text, self._anchor
        if anchor:
            ids = self.encode(_ANCHOR + text)
            if ids[: len(anchor)] == anchor:
                return [*ids[len(anchor) :], self.eos_id]
        return [*self.encode(text), self.eos_id]


def _turns_of(messages: list[chat_process.Message]) -> tuple[list[str], str | None]:
    """The turns and the system text of messages to a model built here. Raises ConfigError for others."""
    system = messages[0]["content"] if messages and messages[0]["role"] == "system" else None
    turns = messages[0 if system is None else 1 :]
    for number, message in enumerate(turns):
        if message["role"] != ("assistant" if number % 2 else "user"):
            raise ConfigError(f"messages: a {message['role']} message where user and assistant take turns")
    if len(turns) % 2 == 0:
        raise ConfigError("messages: the last one is the user's, and the assistant answers")
    return [message["content"] for message in turns], system
