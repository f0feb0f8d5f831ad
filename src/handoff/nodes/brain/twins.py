"""Whether two that have one name and one key are one node.

A node says which ``instance`` it is: its installation, since which start of the machine, which
file its calls are noted in, and which start of its process, with dots between. Whoever copies
a node's folder copies its key and its installation, but neither file nor process; two such
must not take turns under one name, and what one of them has noted says nothing of the other.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Instance"]


class Instance(NamedTuple):
    """``boot``, ``file`` and ``run`` are empty for nodes that do not say them."""

    installation: str
    boot: str = ""
    file: str = ""
    run: str = ""

    @classmethod
    def of(cls, said: str) -> Instance:
        """From a hello's text."""
        return cls(*said.split(".", 3))

    @property
    def notes(self) -> str:
        """The same for two that have noted the same calls."""
        return f"{self.installation}.{self.boot}.{self.file}"

    def is_stranger(self, other: Instance) -> bool:
        """Whether they are surely two installations."""
        mine, theirs = self.installation, other.installation
        return bool(mine and theirs) and mine != theirs

    def may_be_copy(self, other: Instance) -> bool:
        """Whether they are two processes of one installation: the same node that was started
        anew, or a copy of it."""
        return bool(self.run and other.run) and self.run != other.run
