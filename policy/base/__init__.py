"""The small base model that ships with the project: its files, and the corpus that it learned from."""

from pathlib import Path

MODEL = Path(__file__).with_name("model")  # a Hugging Face folder
