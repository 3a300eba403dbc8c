"""What runs inside a desktop, under the guest's own Python.

Invariant: standard library and distribution packages only, and nothing here is imported by the host side.
"""
