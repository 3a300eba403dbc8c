"""Errors of the embedded engine and of a rank process."""

# ruff: noqa: N818 - an error is named after its condition, as in `except EngineBusy`

from __future__ import annotations

from runtime.errors import ComputerRLError


class EngineError(ComputerRLError):
    """The embedded engine can't do what was asked: unusable weights, an unknown weight version."""


class EngineBusy(EngineError):
    """The embedded engine's waiting line is full; the same request may succeed later."""


class LearnerError(ComputerRLError):
    """A rank process failed or a step could not be computed."""


class NoModel(LearnerError):
    """The rank holds no model, or another version than the one asked about: it was restarted."""


class PictureError(ComputerRLError):
    """Bytes are no picture that a model can be shown: no PNG, damaged, too large, of a strange kind."""
