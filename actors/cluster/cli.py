"""The command line.

Invariant: bad input ends in one line on standard error and exit status 2. The line says what is wrong and what is
nearest to right. A traceback means a bug of ours. Exit status 1 is a bad verdict, 130 an interruption.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NoReturn

from actors.cluster.commands import COMMANDS, declare
from actors.cluster.config.suggest import hint
from actors.cluster.output import Unwritten, clean, drop_output, open_streams, write
from runtime.errors import ConfigError
from runtime.program import NAME, program

LONGEST = 2000  # characters of a line that says what is wrong
_CHOICE = re.compile(r"argument (?P<name>.*): invalid choice: '?(?P<word>.*?)'? \(choose from (?P<options>.*)\)")


def _own(examples: str | None, prog: str) -> str:
    """Of a command's examples those of `prog`, which may be one of its verbs; all where none is. They can be pasted."""
    head, *lines = (examples or "").splitlines() or [""]
    mine = [line for line in lines if f"{prog} " in f"{line} "]
    return "\n".join([head, *(mine or lines)]).replace(f"{NAME} ", f"{program()} ")


class HelpFormatter(argparse.HelpFormatter):
    """argparse's, with paragraphs that fill the terminal's width. A line with an example stays whole."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled = []
        for part in re.split(r"(?<=\.)\n|\n(?= )", text):
            if found := re.fullmatch(r"(  .*?\S)(?P<remark>   +\S.*)", part.rstrip()):
                filled += [part] if len(part) <= width else [found[1], f"      {found['remark'].strip()}"]
            else:
                filled.append(part if part.startswith(" ") else textwrap.fill(part, width, break_on_hyphens=False))
        return "\n".join(filled)


class VersionAction(argparse.Action):
    """Print what runs here and end."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """End with status 0."""
        from importlib.metadata import version

        from runtime.program import check_origin

        write(f"computerrl {version('computerrl')} build {check_origin().build}\n", sys.stdout)
        parser.exit(0)


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one line with the nearest right word."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=HelpFormatter, **options)
        self.epilog = _own(self.epilog, self.prog)

    def _print_message(self, message: str, file: Any = None) -> None:
        write(message or "", file or sys.stderr)

    def error(self, message: str) -> NoReturn:
        """End with status 2."""
        found = _CHOICE.fullmatch(message)
        if found:
            options = [option.strip(" '") for option in found["options"].split(",")]
            message = f"{found['name']}: {found['word']} is not one of them; {hint(found['word'], options)}"
        self.exit(2, f"{self.prog}: {message} (see {program()}{self.prog.removeprefix(NAME)} --help)\n")

    def unknown(self, words: Sequence[str]) -> NoReturn:
        """End with status 2 over arguments that nothing takes."""
        word = words[0].partition("=")[0]
        options = [option for action in self._actions for option in action.option_strings]
        nearest = hint(word, options)
        takes = ", ".join(str(one.metavar) for one in self._actions if not one.option_strings and one.metavar)
        known = f"unexpected, the command takes {takes or 'no such word'}"
        self.error(f"{words[0]}: no such argument; {nearest}" if word.startswith("-") else f"{word}: {known}")

    def refuse_values(self, args: argparse.Namespace) -> None:
        """Raise ConfigError for the first argument that is out of its bounds, or was given as an empty word.

        Else a script's unset variable would mean the current folder, or the default, without a word.
        """
        for action in self._actions:
            given = getattr(args, action.dest, None)
            if given == "" or (isinstance(given, list) and "" in given):
                name = action.option_strings[-1] if action.option_strings else action.metavar or action.dest
                without = "" if action.required and action.nargs is None else ", or leave it out"
                raise ConfigError(f"{name} is empty: give it a value{without}")
            least, most = getattr(action, "bounds", (None, None))
            if least is not None and given is not None and not least <= given <= (most or given):
                flag = action.option_strings[0]
                between = f"{flag} {given}: it is between {least} and {most}"
                raise ConfigError(between if most else f"{flag} is {given}: it counts from {least}")


def _short(line: str) -> str:
    """A line without its middle where it is very long, as where it names a key of a megabyte."""
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 500]} ... {line[-500:]}"


@lru_cache(maxsize=1)
def build_parser() -> Parser:
    """The whole command line, built once in a process."""
    parser = Parser(
        prog=NAME,
        description="Train computer-use agents on real desktops. Exit status: 0 good, 1 a bad verdict (COMMAND --help"
        " says which), 2 bad input, 130 interrupted.",
        epilog="first steps:\n  computerrl doctor\n  computerrl play file_manager\n  computerrl run learn --web\n",
    )
    parser.add_argument("--version", action=VersionAction, nargs=0, help="print version and build, and end")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    declare(commands, COMMANDS)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the process's exit status."""
    open_streams()
    prog = NAME
    try:
        parser = build_parser()
        words = [*(sys.argv[1:] if argv is None else argv)]
        args, rest = parser.parse_known_args([*words[1:], "--help"] if words[:1] == ["help"] else words)
        if args.command is None:
            if rest:
                parser.unknown(rest)
            parser.print_help(sys.stdout)
            return 0
        if rest:
            args.parser.unknown(rest)
        prog = args.parser.prog
        args.parser.refuse_values(args)
        return int(args.main(args))
    except ConfigError as error:
        sys.stderr.write(_short(clean(f"{prog}: {error}")) + "\n")
        return 2
    except Unwritten as error:
        drop_output()
        sys.stderr.write(f"computerrl: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader left (`| head`): not an error
        drop_output()
        return 0


if __name__ == "__main__":
    sys.exit(main())
