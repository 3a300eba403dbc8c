"""What to run where.

Invariant: a spec is data, and its wire form holds names and MessagePack only. An inline actor is made from the same
wire form as a remote one. A config that can't travel therefore fails everywhere alike.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from runtime.errors import ConfigError
from runtime.messaging.message import decode, encode, import_path, load
from runtime.supervision import RestartPolicy

MAIN = "main"
_NAME = re.compile(r"[a-z][a-z0-9_]*(/[a-z0-9_]+)*")


class _Both(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    restart: RestartPolicy = RestartPolicy()
    mailbox: int = 1024  # messages
    start_timeout_s: float = 300.0
    stop_timeout_s: float = 20.0


class WireSpec(_Both, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`ActorSpec` as it travels to the actor's host."""

    factory: str
    config_type: str
    config: bytes

    def build(self) -> Any:
        """A new actor. Raises ConfigError when the factory or the config type can't be loaded."""
        return load(self.factory)(self.made_config())

    def made_config(self) -> Any:
        """The config as the actor gets it, or None. Raises ConfigError when its type can't be loaded."""
        return decode(self.config, load(self.config_type)) if self.config_type else None


class ActorSpec(_Both, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One actor: its name, `factory` (an Actor class or its `module:Class` path), config and host.

    An actor whose process host is lost starts again with the host; the host's own policy counts that.
    """

    factory: Any
    config: Any = None
    host: str = MAIN

    def wire(self) -> WireSpec:
        """The form that travels. Raises ConfigError for a bad name and ProtocolError for a config that can't travel."""
        check_name(self.name)
        return WireSpec(
            **{field: getattr(self, field) for field in _Both.__struct_fields__},
            factory=self.factory if isinstance(self.factory, str) else import_path(self.factory),
            config_type="" if self.config is None else import_path(type(self.config)),
            config=b"" if self.config is None else encode(self.config),
        )


class HostSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One child process, here or on the machine of a cluster that `place` asks for (`runtime/hosts/placer.py`).

    Of this process's environment it gets what `runtime/program.py` lists and what `passes` names; `env` is
    added. `nice` is added to its niceness.

    A child whose loop has not answered for `heartbeat_s` is named as a stall. After `silent_limit_s` without an answer
    it is killed and started again: it was stopped, or is stuck in one call. On another machine it then stops by itself,
    too, for it has not heard from here either.
    """

    name: str
    place: dict[str, float] | None = None  # what its machine must have free, {} for any machine; None is this one
    env: dict[str, str] = {}
    passes: tuple[str, ...] = ()  # names of further variables of this process's environment
    counts_below: bool = False  # whether its processor time is also that of the processes below it
    restart: RestartPolicy = RestartPolicy()
    start_timeout_s: float = 60.0
    stop_timeout_s: float = 90.0  # for what its actors share; then it is killed
    heartbeat_s: float = 15.0
    silent_limit_s: float = 60.0


def check_name(name: str) -> None:
    """Raise ConfigError unless `name` is like `desktop/3`: it also names files, so no two names may meet there."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"an actor or host is called like desktop/3 (lower case, digits, underscores), not {name!r}")
