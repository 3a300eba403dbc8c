"""What made files that ship with the project. The wheel holds none of it."""
