"""Breaks the parts of a real run at random times, from outside, and judges what the run makes of it."""
