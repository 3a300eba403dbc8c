"""A terminal that shows notes, as an application of its own with one function."""
