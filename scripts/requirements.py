"""Print the requirements of dependency groups, one a line: requirements.py GROUP..."""

from __future__ import annotations

import pathlib
import sys
import tomllib


def requirements(groups: dict[str, list[str | dict[str, str]]], name: str) -> list[str]:
    """The requirements of one group, included groups in their place."""
    found: list[str] = []
    for entry in groups[name]:
        if isinstance(entry, str):
            found.append(entry)
        else:
            found += requirements(groups, entry["include-group"])
    return found


if __name__ == "__main__":
    root = pathlib.Path(__file__).resolve().parent.parent
    groups = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
    for group in sys.argv[1:]:
        print("\n".join(requirements(groups, group)))
