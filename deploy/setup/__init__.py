"""Data for setting a machine up: Debian packages by application, and the set-up script."""
