"""Demonstrations: recording them once, looking at them, and carrying them from run to run."""
