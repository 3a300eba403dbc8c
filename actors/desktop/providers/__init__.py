"""Where desktops come from."""
