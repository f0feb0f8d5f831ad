"""Run the benchmarks and print one table. ``scripts/bench --help`` tells the flags."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

from common import ENV, PYTHON, ROOT, Row, table

HERE = Path(__file__).parent

#: in this order: what needs no daemon first
FILES = [
    "cli_start",
    "cli_live",
    "store_events",
    "shim",
    "gate_verdict",
    "gate",
    "redaction",
    "node_wire",
    "node_link",
    "nodes",
    "node_scale",
    "node_memory",
    "sessions",
    "daemon_idle",
    "fanout",
    "dispatch",
    "attach",
    "scale",
    "recovery",
]

#: folder below .live -> what is installed there
PEERS = {"cao": ["cli-agent-orchestrator"], "peers": ["asyncssh>=2.21,<3", "execnet>=2.1,<3"]}

PAGE = """\
# Performance

Budgets are for a quiet machine with two cores. Each figure is measured beside the best peer
that can be installed on the same machine, in the same run, with the same durability and the
same work. Medians, unless a row says otherwise. The files in `benchmarks/` tell how each one
is counted.

Run it yourself:

```text
scripts/bench                 # all figures, one table
scripts/bench shim store_events
scripts/bench --quick         # fewer repetitions
scripts/bench --check         # exit code 1 if a figure is over twice its budget
scripts/bench --write         # this page
```

## Figures

{table}

Measured {date} on {machine}.{note}

## What the figures rest on

- **Starting.** `handoff --help` imports five modules of ours and none of the standard library
  that the interpreter has not loaded by itself. A command against the daemon adds argparse,
  json and a plain socket. `tests/unit/test_import_budget.py` holds the list; a new import on
  these paths fails it.
- **Writing.** One thread commits what waits as a group, with `synchronous = FULL`: a result in
  hand is on the medium. With a single producer every write pays for a sync of its own; with
  a hundred they share one.
- **Reading.** Subscribers hold a cursor and read rows; publishing sets a flag. The newest rows
  of a task are encoded once, whatever the number of subscribers.
- **Waiting.** Actors, streams and shims sleep until they are woken.
- **Secrets out of text.** Each rule begins with what is cheap for a whole text: where its words
  stand, and which different runs of token characters there are. That is looked up once, in a
  copy in ASCII, and kept while what was found is marked. A text in which much is found costs
  more, and so does strict mode on a log full of random ids.
- **Records.** A page of the list comes from an index, a search from its trigrams, both looked
  up once; what is shown of a record is read from its own files and checked again.

## Peers

Those that are not in the `bench` group of `pyproject.toml` go into `.live`, and are left out
of the table where they are missing. OpenSSH and rsync come from the system: the client, `sshd`
(never started as a service: a private one runs while it is measured) and `rsync`.

```text
scripts/bench --peers         # cli-agent-orchestrator, asyncssh, execnet
scripts/live-install          # opencode, among other executors
```
"""


def machine() -> str:
    """The facts that a reader needs to compare: processor, memory, kernel, versions, load."""
    import sqlite3

    cpu = "unknown processor"
    info = Path("/proc/cpuinfo")
    if info.exists():
        found = re.search(r"model name\s*: (.*)", info.read_text())
        cpu = found[1].strip() if found else cpu
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} × {cpu}, {memory:.0f} GiB, {platform.system()} "
        f"{platform.release().partition('-')[0]}, CPython {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}; load average {os.getloadavg()[0]:.1f}"
    )


def run(name: str, quick: bool) -> list[Row]:
    """The rows of one file; a file that fails gives one row that says so."""
    command = [PYTHON, str(HERE / f"{name}.py"), "--json", *(["--quick"] if quick else [])]
    try:
        done = subprocess.run(
            command, env=ENV, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
        )
    except subprocess.TimeoutExpired:
        return [Row(name, skipped="it took more than 15 minutes")]
    if done.returncode:
        sys.stderr.write(done.stderr)
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        return [Row(name, skipped=last[:200])]
    return [Row(**row) for row in json.loads(done.stdout.splitlines()[-1])]


def install_peers() -> int:
    """Those of PyPI, each in an environment of its own."""
    failed = 0
    for folder, names in PEERS.items():
        place = ROOT / ".live" / folder
        subprocess.run([PYTHON, "-m", "venv", str(place)], check=True)
        pip = [str(place / "bin" / "pip"), "install", "--quiet", *names]
        failed = subprocess.run(pip, check=False).returncode or failed
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measure against budgets.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(FILES)}")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--check", action="store_true", help="fail on twice the budget")
    parser.add_argument("--note", default="", help="with --write: what else a reader should know")
    parser.add_argument("--peers", action="store_true", help="only install the peer servers")
    parser.add_argument("--write", action="store_true", help="write docs/performance.md")
    args = parser.parse_args()
    unknown = set(args.names) - set(FILES)
    if unknown:
        parser.error(f"no benchmark is named {', '.join(sorted(unknown))}")
    if args.peers:
        return install_peers()
    facts = machine()
    rows: list[Row] = []
    for name in args.names or FILES:
        sys.stderr.write(f"{name} ...\n")
        rows += run(name, args.quick)
    print(table(rows))
    print(f"\n{facts}")
    if args.write:
        date = time.strftime("%Y-%m-%d")
        note = f" {args.note}" if args.note else ""
        page = PAGE.format(table=table(rows), date=date, machine=facts, note=note)
        (ROOT / "docs" / "performance.md").write_text(page, "utf-8")
    over = [r for r in rows if r.skipped or r.verdict(slack=2.0) == "over"]
    for row in over:
        sys.stderr.write(f"twice its budget, or not measured: {row.figure}\n")
    return 1 if args.check and over else 0


if __name__ == "__main__":
    sys.exit(main())
