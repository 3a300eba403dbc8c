"""Recorded episodes, played and judged again."""
