"""Twins of published metrics: generated results whose scores are known."""
