"""Desktops as virtual machines of qemu."""
