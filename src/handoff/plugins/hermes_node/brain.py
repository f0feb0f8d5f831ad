"""The program that serves a profile's nodes: ``python brain.py FOLDER``.

It is a program of its own: what it needs lies beside it, in ``_vendor``, and comes before
any Handoff that its interpreter may have.
"""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Serve until it is told to end."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, os.path.join(here, "_vendor"))
    from handoff.nodes.brain.main import main as serve

    return serve()


if __name__ == "__main__":
    sys.exit(main())
