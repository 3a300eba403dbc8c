"""Undoes the keyboard's locks and latches.

Invariant: this has an X connection of its own. The server tells a client that uses this extension nothing of a new
layout in the way that the library understands.
"""

from __future__ import annotations

from Xlib import X, display
from Xlib.protocol import rq

NUMBER_LOCK = X.Mod2Mask  # of the number keys alone
STATE = 0x60FF  # of what the pointer tells: modifiers and the group
CORE_KEYBOARD = 0x100  # XkbUseCoreKbd


class _LatchLockState(rq.Request):  # type: ignore[misc, unused-ignore]
    """XkbLatchLockState of the X Keyboard Extension, which the library lacks."""

    _request = rq.Struct(
        rq.Card8("opcode"), rq.Opcode(5), rq.RequestLength(),
        rq.Card16("device"), rq.Card8("affect_locks"), rq.Card8("locks"), rq.Card8("lock_group"), rq.Card8("group"),
        rq.Card8("affect_latches"), rq.Card8("latches"), rq.Card8("latch_group"), rq.Card8("unused"),
        rq.Card16("group_latch"),
    )  # fmt: skip


class _UseExtension(rq.ReplyRequest):  # type: ignore[misc, unused-ignore]
    """XkbUseExtension: without it the server refuses the others."""

    _request = rq.Struct(rq.Card8("opcode"), rq.Opcode(0), rq.RequestLength(), rq.Card16("major"), rq.Card16("minor"))
    _reply = rq.Struct(
        rq.ReplyCode(), rq.Card8("supported"), rq.Card16("sequence_number"), rq.ReplyLength(), rq.Card16("major"),
        rq.Card16("minor"), rq.Pad(20),
    )  # fmt: skip


def undo_locks() -> None:
    """Undo locks (but that of the number keys), latches and a change of group."""
    own = display.Display()
    try:
        found = own.query_extension("XKEYBOARD")
        if found is None or not found.present:
            return
        code = found.major_opcode
        _UseExtension(display=own.display, opcode=code, major=1, minor=0)
        _LatchLockState(
            display=own.display, opcode=code, device=CORE_KEYBOARD,
            affect_locks=0xFF & ~NUMBER_LOCK, locks=0, lock_group=1, group=0,
            affect_latches=0xFF, latches=0, latch_group=1, unused=0, group_latch=0,
        )  # fmt: skip
        own.sync()
    finally:
        own.close()
