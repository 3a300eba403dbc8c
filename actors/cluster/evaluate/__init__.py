"""Evaluating a model on its own: real desktops and engines, and nothing that learns."""
