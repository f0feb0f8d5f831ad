"""The server that hosts start which load this directory as a portable plugin.

It is a program of its own: what it needs lies beside it, in ``_vendor``, and comes before
any Handoff that its interpreter may have.
"""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Serve on standard input and output."""
    if sys.version_info < (3, 11):  # noqa: UP036 - the interpreter is the host's choice
        found = ".".join(str(part) for part in sys.version_info[:3])
        print(f"handoff: Python 3.11 or newer is needed; this is {found}", file=sys.stderr)
        return 1
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.path.insert(0, os.path.join(root, "_vendor"))
    from handoff.mcp.server import run

    return run()


if __name__ == "__main__":
    sys.exit(main())
