"""Measures what a run costs on this machine."""
