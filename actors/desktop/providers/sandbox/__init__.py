"""Desktops as sandboxes on this machine."""
