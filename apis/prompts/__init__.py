"""How a model sees a task: the published form of a prompt, and a compact form of it for small models."""

from __future__ import annotations

from typing import Literal

Form = Literal["compact", "published"]
FORMS: tuple[Form, ...] = ("compact", "published")
