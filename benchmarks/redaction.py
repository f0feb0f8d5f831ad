"""Secrets out of text: processor time per MiB, and whether it grows with the text alone.

Corpora of one MiB, the same on every run: the documents and the source of this repository,
recorded transcripts of executors (JSON with the output of tools), a made-up log of a build,
and source with secrets in it, each of one of the formats and contexts of the redaction suite. Processor time, not wall time: p95 over the passes. Growth: twenty-six
texts that are hard on a search, each at two lengths; 1 is linear, 4 would be a square.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

from common import ROOT, Row, main, p50

from handoff.redaction import Redactor
from handoff.sessions.bench import secrets
from handoff.sessions.bench.chance import Chance

MIB = 2**20
BUDGET = 50.0
DENSE = "source with a secret after 10 lines"
SMALL, LARGE = 64 * 1024, 256 * 1024

#: repeated, each of these asks for more work than its length tells
HARD = (
    "password=", "password: ", "sk-", "sk-a1", "://", "://a:", "-----BEGIN PRIVATE KEY-----",
    "Bearer ", "eyJ", "eyJabcdefghij.", "a\n", "a\n a\n", "+a\n", "token\n", " -u a:", "key",
    "passpass", "\\", "AKIA", ":AA", "password: |\n  x\n", "a.b.c=", "%3D", "x" * 79 + "\n",
    '{"password":"', "secret is ",
)  # fmt: skip


def read(folder: str, pattern: str) -> str:
    """The files of a folder, one after the other."""
    paths = sorted(path for path in Path(ROOT, folder).rglob(pattern) if path.is_file())
    return "".join(path.read_text("utf-8", "replace") for path in paths)


def log(chance: random.Random) -> str:
    """What a build and a test run print."""
    lines = []
    for second in range(20_000):
        path = f"src/pkg{chance.randrange(40)}/mod_{chance.randrange(400)}.py"
        kinds = (
            f"12:{second // 60 % 60:02}:{second % 60:02} INFO compiled {path} in 12 ms",
            f"{path}::test_case_{second}[{chance.randrange(9)}] PASSED",
            f"GET https://host.example/api/v1/items/{second}?page=2 200 4.1ms",
            f'  File "{path}", line {chance.randrange(900)}, in handle',
            f"commit {chance.randbytes(20).hex()} on main",
        )
        lines.append(chance.choices(kinds, (6, 6, 3, 4, 1))[0])
    return "\n".join(lines)


def dense(plain: str, apart: int) -> str:
    """The text with a secret after so many lines, again and again."""
    chance = Chance(1, "benchmark")
    forms = (*secrets.PREFIXED, *secrets.HELD_OUT)
    groups = (secrets.KEYED.values(), secrets.STRUCTURAL.values(), secrets.PROSE)
    contexts = [context for group in groups for context in group]
    lines = []
    for number, line in enumerate(plain.split("\n")):
        lines.append(line)
        if number % apart == apart - 1:
            value = secrets.token(chance, forms[number // apart % len(forms)])
            lines.append(secrets.placed(contexts[number // apart % len(contexts)], value))
    return "\n".join(lines)


def sized(text: str, length: int = MIB) -> str:
    """So much of it, again from the start where it ends."""
    return (text * (length // max(1, len(text)) + 1))[:length]


def corpora() -> dict[str, str]:
    """One MiB each, by name."""
    source = read("src", "*.py")
    texts = {
        "documents": read("docs", "*.md"),
        "source": source,
        "transcripts": read("tests/contract/transcripts", "*.jsonl"),
        "logs": log(random.Random(1)),
        "source with a secret after 100 lines": dense(source, 100),
        DENSE: dense(source, 10),
    }
    return {name: sized(text) for name, text in texts.items()}


def taken(redactor: Redactor, text: str) -> float:
    """Processor time in milliseconds."""
    began = time.process_time()
    redactor.redact(text)
    return (time.process_time() - began) * 1000


def per_mib(redactor: Redactor, text: str, times: int) -> tuple[float, float]:
    """(p50, p95) in milliseconds per MiB of UTF-8."""
    size = len(text.encode("utf-8", "surrogatepass")) / MIB
    spent = sorted(taken(redactor, text) / size for _ in range(times))
    return p50(spent), spent[min(len(spent) - 1, len(spent) * 95 // 100)]


def growth(redactor: Redactor, piece: str, times: int) -> float:
    """How much more a character costs in the longer text: least times, so that a busy
    neighbour is not measured."""
    small = min(taken(redactor, sized(piece, SMALL)) for _ in range(times))
    large = min(taken(redactor, sized(piece, LARGE)) for _ in range(times))
    return large / max(small, 1.0) / (LARGE / SMALL)


def _dearest(redactor: Redactor) -> Row:
    """The hard text that costs most."""
    cost, piece = max((taken(redactor, sized(piece)), piece) for piece in HARD)
    return Row("redaction of the dearest hard text, per MiB", "ms", cost, note=repr(piece[:16]))


def measure(quick: bool) -> list[Row]:
    times = 5 if quick else 20
    rows = []
    texts = corpora()
    for mode in ("standard", "strict"):
        redactor = Redactor(b"benchmark", {"A_KEY": "hunter2-hunter2-xyz"}, mode=mode)
        for name, text in texts.items():
            middle, high = per_mib(redactor, text, times)
            note = f"p50 {middle:.3g}"
            # What is found costs time by itself: a text full of secrets has no budget.
            budget = None if name == DENSE else BUDGET
            rows.append(Row(f"redaction of {name}, {mode}, per MiB", "ms", high, budget, note=note))
    redactor = Redactor(b"benchmark", mode="strict")
    worst = max((growth(redactor, piece, 2 if quick else 4), piece) for piece in HARD)
    note = f"the worst of {len(HARD)}: {worst[1][:16]!r}"
    rows.append(_dearest(redactor))
    rows.append(
        Row("redaction: growth per character, 4 times the text", "x", worst[0], 2.0, note=note)
    )
    return rows


if __name__ == "__main__":
    main(measure)
