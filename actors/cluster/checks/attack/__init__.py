"""Cheats on real desktops: none of them may pass for a task that was done."""
