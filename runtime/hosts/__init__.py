"""Where actors live. Nothing outside this package knows."""
