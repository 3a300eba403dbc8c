"""The one way in which a file of a guest is refused. Invariant: alone, so that reading plain files loads no parser."""

from __future__ import annotations


class RefusedError(Exception):
    """The file is not read; the text is one of `outside.Refusal`."""
