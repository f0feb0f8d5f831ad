"""Small real git repositories."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass

from tests.support.home import Home


@dataclass(frozen=True)
class Repository:
    """A repository with one commit on ``main``. Use as a path: ``repository.path``."""

    path: pathlib.Path
    home: Home

    def git(self, *args: str) -> str:
        """Run git inside it."""
        return self.home.git(*args, cwd=self.path)

    def head(self, revision: str = "HEAD") -> str:
        """The full id of a revision."""
        return self.git("rev-parse", "--verify", revision)

    def commit(self, files: dict[str, str], message: str = "change") -> str:
        """Write files and commit them; the new id."""
        for name, text in files.items():
            target = self.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        return self.head()


def make_repository(home: Home, name: str = "calc") -> Repository:
    """A repository below the home, with an origin that nobody can reach."""
    path = home.path / name
    path.mkdir()
    repository = Repository(path, home)
    repository.git("init", "-q")
    repository.git("remote", "add", "origin", f"ssh://git@example.invalid/ada/{name}.git")
    repository.commit({"README.md": f"# {name}\n", "app.py": "print('hello')\n"}, "Begin")
    return repository
