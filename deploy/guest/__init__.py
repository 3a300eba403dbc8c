"""Data for the inside of desktops: packages and the HOME that each desktop starts with."""
