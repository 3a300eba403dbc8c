"""Bundled task suites."""
