"""Bytes of unknown length, kept within a bound. Invariant: no more than the bound and one piece is ever held."""

from __future__ import annotations

from collections.abc import AsyncIterable


async def joined(pieces: AsyncIterable[bytes], most: int) -> bytes | None:
    """All pieces as one; None once they are more than `most` bytes, and then the rest is not asked for."""
    parts: list[bytes] = []
    size = 0
    async for part in pieces:
        size += len(part)
        if size > most:
            return None
        parts.append(part)
    return b"".join(parts)
