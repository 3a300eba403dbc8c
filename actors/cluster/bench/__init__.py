"""Measures what desktops cost on this machine, and whether a run stands faults for long."""
