"""What made the files that ship with the project. The wheel holds none of it."""
