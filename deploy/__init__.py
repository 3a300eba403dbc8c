"""Data: one YAML per way of running it, images, task files, set-up scripts."""
