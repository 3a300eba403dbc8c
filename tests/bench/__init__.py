"""Measures what desktops and engines cost on this machine, and whether a run stands faults for long."""


def no_bars() -> None:
    """Keep transformers' progress bars, of models that load in milliseconds, out of what a measurement prints."""
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
