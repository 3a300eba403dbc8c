"""How a model sees a task: the published form of a prompt, and a compact form of it for small models."""

from __future__ import annotations

from typing import Literal

import msgspec

from apis.actions.arguments import Unit
from apis.prompts.template import Template

Form = Literal["compact", "published"]
FORMS: tuple[Form, ...] = ("compact", "published")
Observed = Literal["text", "picture", "both"]


class Sight(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a prompt shows of a desktop, the unit of its places, and the words of the published form."""

    observed: Observed = "text"
    unit: Unit = "pixels"
    template: Template = Template()
    noise: bool = False  # in place of the picture

    @property
    def picture(self) -> bool:
        """Whether the screen is shown as a picture."""
        return self.observed != "text"

    @property
    def tree(self) -> bool:
        """Whether the accessibility tree is shown as text."""
        return self.observed != "picture"


USUAL = Sight()
