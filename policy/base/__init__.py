"""The small base model that ships with the project: its corpus, its starting weights, its recipe, its files."""
