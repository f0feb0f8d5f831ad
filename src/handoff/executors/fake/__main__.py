"""``python -I -m handoff.executors.fake``: the scripted executor on standard input and output.

Options: ``--state DIR`` (keep sessions there, so that they can be loaded), ``--log FILE``
(JSON lines of what happened; also the variable ``HANDOFF_FAKE_LOG``), ``--version``,
``--start-delay SECONDS``, ``--start-error CODE:MESSAGE``, ``--session-error
CODE:MESSAGE``, ``--no-load``, ``--no-resume``, ``--ignore-term``.
"""

from __future__ import annotations

import os
import sys
import time

from handoff.executors.fake.agent import Options, serve

_VERSION = "1.0"


def main(argv: list[str]) -> int:
    """Run the executor; the exit code for a wrong option is 2."""
    options = Options(log=os.environ.get("HANDOFF_FAKE_LOG"), version=_VERSION)
    flags = {
        "--no-load": "no_load",
        "--no-resume": "no_resume",
        "--ignore-term": "ignore_term",
    }
    values = {
        "--state": "state",
        "--log": "log",
        "--start-error": "start_error",
        "--session-error": "session_error",
    }
    words = iter(argv)
    for word in words:
        if word == "--version":
            print(f"handoff-fake {_VERSION}")
            return 0
        if word in flags:
            setattr(options, flags[word], True)
            continue
        value = next(words, None)
        if value is None or (word not in values and word != "--start-delay"):
            print(f"handoff-fake: no such option: {word}", file=sys.stderr)
            return 2
        if word == "--start-delay":
            time.sleep(float(value))
        else:
            setattr(options, values[word], value)
    serve(options)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
