"""Office files of a hostile guest, read within bounds. Standard library only: the reading worker imports it."""
