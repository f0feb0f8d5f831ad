"""Plans for the scripted executor."""

from __future__ import annotations

import json


def fake_plan(*steps: dict[str, object] | str, title: str = "Do as scripted") -> str:
    """A plan whose script the ``fake`` executor plays: one mapping or bare name a step.

    >>> print(fake_plan({"say": {"text": "hello"}}))
    # Do as scripted
    <BLANKLINE>
    ```handoff-script
    - {"say": {"text": "hello"}}
    ```
    <BLANKLINE>
    """
    # JSON is YAML: nothing needs quoting rules of its own.
    body = "\n".join(f"- {json.dumps(step)}" for step in steps)
    return f"# {title}\n\n```handoff-script\n{body}\n```\n"
