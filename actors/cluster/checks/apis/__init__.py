"""Whether the functions of applications work on the real applications."""
