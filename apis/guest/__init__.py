"""What runs inside a desktop, under the guest's own Python.

Invariant: standard library and distribution packages only, and the host side imports only modules that
import no other one of these.
"""
