"""What runs inside a desktop, under the guest's own Python.

Invariant: modules use the standard library and distribution packages only. The host side imports only modules that
import no other module of this package.
"""
