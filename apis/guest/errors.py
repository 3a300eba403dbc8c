"""The one error that methods raise on purpose."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818 - an answer, not a defect
    """The agent can't do what was asked; `kind` is a short word for programs, the text is for people."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
