"""What depends on the machine, beside the seeded suites: how long the redactor takes (B8), and
what it takes out of documents that are at hand (B5)."""

from __future__ import annotations

import os
import platform
import re
import sysconfig
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from handoff.redaction import MARK, Redactor
from handoff.sessions.bench.contexts import DOCS_BY_OTHERS
from handoff.sessions.redact import SESSION_MODES, SessionRedactor

#: bytes of one document; longer ones are no documents but data
_LIMIT = 400_000
#: redactions in 100,000 words that are allowed, placeholders aside (in tenths)
ALLOWED = min(DOCS_BY_OTHERS.values())
#: milliseconds for a MiB on a quiet machine
PACE = 50.0
_PASSES = 20
_MIB = 2**20
#: texts that have made redactors slow, each a unit that is repeated
SHAPES = (
    '"', "'", '\\"', "=", ":", "-", "a=", 'key="', "token: '", "://", "://a:", "@", "-u ",
    "-----BEGIN RSA PRIVATE KEY-----\n", "eyJ", "eyJa.", "sk-", "password is ", "x\n", "A" * 64,
    "[redacted:", "%3D", "Bearer ", "key: |\n  ", "${", "\u00e9", "0123456789abcdef",
)  # fmt: skip
#: times slower that a text of four times the length may be
GROWTH = 8.0
#: what stands for a secret in documents, and may as well be taken out
_STANDS_FOR = re.compile(
    r"(?i)your|example|my[-_ ]|xxx|\*\*\*|abc|123|foo|bar|secret|token|passw|key|user|test|changeme"
)


def documents() -> Iterator[tuple[str, str]]:
    """(name, text) of the documents that every Python has at hand: its own topics, and the
    Markdown and reStructuredText files of installed packages."""
    from pydoc_data import topics

    for name, text in sorted(topics.topics.items()):
        yield f"pydoc/{name}", text
    for path in sorted(set(_files(sysconfig.get_paths()["purelib"]))):
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read(_LIMIT + 1)
        except (OSError, UnicodeDecodeError):
            continue
        if len(text) <= _LIMIT:
            yield path, text


def _files(folder: str) -> Iterator[str]:
    for where, _, names in os.walk(folder):
        for name in names:
            if name.endswith((".md", ".rst")) or name == "METADATA":
                yield os.path.join(where, name)


def corpus(texts: Iterable[tuple[str, str]], mode: str = "standard") -> dict[str, Any]:
    """What redacting documents takes out: ``documents``, ``words``, ``redactions``,
    ``placeholders`` (of them: values that say themselves that they are none), ``kinds``, and
    ``per_100k`` (in tenths, placeholders aside)."""
    redactor = SessionRedactor(b"bench", mode)
    count = words = placeholders = 0
    kinds: Counter[str] = Counter()
    for _, text in texts:
        count += 1
        words += len(text.split())
        for kind, value in _taken(text, redactor.text(text)):
            kinds[kind] += 1
            placeholders += kind != "random" and _STANDS_FOR.search(value) is not None
    redactions = sum(kinds.values())
    return {
        "mode": mode,
        "documents": count,
        "words": words,
        "redactions": redactions,
        "placeholders": placeholders,
        "kinds": dict(sorted(kinds.items())),
        "per_100k": (redactions - placeholders) * 1_000_000 // max(words, 1),
    }


def _taken(before: str, after: str) -> list[tuple[str, str]]:
    """(kind, what stood there) of each mark."""
    found, at, last = [], 0, 0
    for mark in MARK.finditer(after):
        at += mark.start() - last
        last = mark.end()
        rest = after[last : last + 12]
        end = before.find(rest, at) if rest else len(before)
        found.append((mark.group().split(":")[1], before[at : max(end, at)]))
        at = max(end, at)
    return found


def pace(texts: Iterable[tuple[str, str]]) -> list[tuple[str, float, float]]:
    """(what, value, its limit): milliseconds of the processor for a MiB of documents, and how
    many times as long the worst of :data:`SHAPES` takes when it is four times as long."""
    redactor = Redactor(b"bench", mode="standard")
    whole = "\n".join(text for _, text in texts)[:_MIB]
    passes = sorted(_once(redactor, whole) for _ in range(_PASSES))
    high = passes[_PASSES * 95 // 100 - 1] * _MIB / max(len(whole), 1)
    found = [("documents, ms a MiB, p95", high, PACE)]
    worst = 0.0
    for shape in SHAPES:
        small = _took(redactor, shape * (_MIB // 16 // len(shape)))
        large = _took(redactor, shape * (_MIB // 4 // len(shape)))
        worst = max(worst, large / max(small, 2.0))
    return [*found, (f"the worst of {len(SHAPES)} hostile texts, at four times its length", worst,
                     GROWTH)]  # fmt: skip


def _took(redactor: Redactor, text: str) -> float:
    return min(_once(redactor, text) for _ in range(3))


def _once(redactor: Redactor, text: str) -> float:
    """Milliseconds of the processor."""
    began = time.process_time()
    redactor.redact(text)
    return (time.process_time() - began) * 1000


def measured(*, modes: Iterable[str] = SESSION_MODES) -> dict[str, Any]:
    """All of it: ``machine``, ``pace`` [{what, value, limit, passed}], ``documents`` [corpus]."""
    texts = list(documents())
    times = [
        {"what": what, "value": round(value, 1), "limit": limit, "passed": value <= limit}
        for what, value, limit in pace(texts)
    ]
    machine = (
        f"{platform.system()} on {platform.machine()} with {os.cpu_count()} processors, "
        f"Python {platform.python_version()}"
    )
    return {"machine": machine, "pace": times, "documents": [corpus(texts, mode) for mode in modes]}
