"""Weights by collective, the rank's part: it keeps what was exported, and sends it to a group beside other work.

Invariant: the weights that are sent are the weights that were exported, whatever the model has become since. One group
exists at a time, and it ends by its deadlines. A failure is logged and ends nothing else.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from actors.learner import events
from actors.learner.messages import Broadcast, Broadcasting, BroadcastPart
from policy.errors import LearnerError, NoModel
from runtime.actor import Context
from runtime.messaging.message import Version

if TYPE_CHECKING:
    from torch import Tensor

    from policy.broadcast import SendingGroup

Tensors = dict[str, "Tensor"]


class Sender:
    """Holds one version: the newest that was kept."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._kept: tuple[Version, Tensors] | None = None
        self._sending = ""  # the group that is being sent to

    def keep(self, version: Version, tensors: Tensors) -> None:
        """`tensors` must not change any more."""
        self._kept = version, tensors

    def kept(self, version: Version) -> Tensors:
        """What was kept of `version`. Raises NoModel for another."""
        if self._kept is None or self._kept[0] != version:
            raise NoModel(f"{self._ctx.name} has kept {self._kept and self._kept[0]}, not {version}")
        return self._kept[1]

    async def begin(self, msg: Broadcast) -> Broadcasting:
        """Open the group. Raises NoModel for a version that is not kept, LearnerError while another is sent."""
        from policy import broadcast

        tensors = self.kept(msg.version)
        if self._sending:
            raise LearnerError(f"{self._ctx.name} still sends to {self._sending}")
        self._sending = msg.group
        try:
            parts = broadcast.split(broadcast.described(tensors))
            sums = await asyncio.to_thread(broadcast.checksums, tensors) if msg.checksums else {}
            group = broadcast.SendingGroup(
                msg.group, msg.ranks, address=msg.address, backend=msg.backend, timeout_s=msg.form_s
            )
        except BaseException:
            self._sending = ""
            raise
        self._ctx.spawn(self._send(msg, group, tensors, [part.names for part in parts]), f"send to {msg.group}")
        described = [BroadcastPart(names=part.names, dtypes=part.dtypes, shapes=part.shapes) for part in parts]
        return Broadcasting(port=group.port, parts=described, checksums=sums)

    async def _send(self, msg: Broadcast, group: SendingGroup, tensors: Tensors, parts: list[list[str]]) -> None:
        began = time.monotonic()
        try:
            join_s = await asyncio.to_thread(_carry_out, group, tensors, parts, msg)
        except LearnerError as error:
            self._ctx.log.emit(
                events.WEIGHTS_NOT_SENT,
                version=str(msg.version),
                group=msg.group,
                cause=str(error),
                after_s=round(time.monotonic() - began, 4),
            )
        else:
            self._ctx.log.emit(
                events.WEIGHTS_SENT,
                version=str(msg.version),
                group=msg.group,
                ranks=msg.ranks,
                size_bytes=sum(tensor.nbytes for tensor in tensors.values()),
                join_s=round(join_s, 4),
                send_s=round(time.monotonic() - began - join_s, 4),
            )
        finally:
            self._sending = ""


def _carry_out(group: SendingGroup, tensors: Tensors, parts: list[list[str]], msg: Broadcast) -> float:
    """Seconds until all had joined. Ends within the two limits, and the group with it."""
    began = time.monotonic()
    try:
        group.join()
        joined = time.monotonic()
        for names in parts:
            left_s = max(1.0, joined + msg.send_s - time.monotonic())
            group.send([tensors[name] for name in names], bucket=msg.unit == "bucket", timeout_s=left_s)
        return joined - began
    finally:
        group.close()
