"""The live page: what runs do now, in a browser."""
