"""What runs inside a desktop, under the guest's own Python, and the one error that its methods raise on purpose.

Modules use the standard library and distribution packages only. The product imports only modules that import no other
module of this package.
"""


class Refused(Exception):  # noqa: N818 - an answer, not a defect
    """The agent can't do what was asked; `kind` is a short word for programs, the text is for people."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
