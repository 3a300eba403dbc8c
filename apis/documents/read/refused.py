"""The error of a file that is not read.

Invariant: the error stands alone, so that reading plain files loads no parser.
"""

from __future__ import annotations


class RefusedError(Exception):
    """The file is not read; the text is a value of `ReadRefusal` in `actors.desktop.files.read_home`."""
