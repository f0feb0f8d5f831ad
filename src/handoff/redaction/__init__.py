"""Secrets out of text. Standard library only.

:class:`Redactor` replaces what it finds by marks, :func:`looks_secret` only says whether
something would be found. What is found: values that the caller knows, tokens of known
providers, private keys, and values that stand beside a secret's name. What is not found: a
secret without a name or a shape that nobody told us about.
"""

from __future__ import annotations

from handoff.redaction.known import MIN_KNOWN
from handoff.redaction.redactor import MARK, MODES, Redactor, Stream, looks_secret

__all__ = ["MARK", "MIN_KNOWN", "MODES", "Redactor", "Stream", "looks_secret"]
