"""Data: one YAML per way of running it, images, task files, set-up scripts.

Nothing here is imported for its code; it is found through the installed package.
"""
