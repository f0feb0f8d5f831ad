"""Secrets out of text. Standard library only."""

from __future__ import annotations


def looks_secret(text: str) -> bool:
    """Whether text holds something that looks like a secret."""
    return "PRIVATE KEY-----" in text
