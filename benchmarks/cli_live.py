"""A command against a running daemon: one short process that asks and prints.

Base: ``python -I -c pass``. Peer: the same question asked with httpx, over TCP with the
token, and printed. Commands take turns.
"""

from __future__ import annotations

from common import HANDOFF, PYTHON, Row, interleaved, main, p50, ratios

from live import post, request, running

PEER = """
import json, sys, httpx
with httpx.Client(headers={"authorization": f"Bearer {sys.argv[2]}"}) as client:
    for task in client.get(f"{sys.argv[1]}/api/tasks").raise_for_status().json():
        print(json.dumps(task))
"""


def measure(quick: bool) -> list[Row]:
    with running() as (agentd, repository):
        body = request(repository, {"ask": {"question": "What now?"}})
        task = str(post(agentd, "/api/tasks", body)["id"])
        agentd.wait_state(task, "waiting_answer", "waiting_review")
        url = str(agentd.endpoint()["url"])
        taken = interleaved(
            {
                "base": [PYTHON, "-I", "-c", "pass"],
                "tasks": [HANDOFF, "tasks", "--json"],
                "show": [HANDOFF, "show", task[:8], "--json"],
                "status": [HANDOFF, "status", "--json"],
                "httpx": [PYTHON, "-c", PEER, url, agentd.token],
            },
            5 if quick else 25,
            agentd.home.env,
        )
    times = ratios(taken, "base")
    note = f"base {p50(taken['base']):.1f} ms"
    peer = {"httpx": times["httpx"]}
    return [
        Row(f"`handoff {words}` over `python -I -c pass`", "×", times[key], 3, peer, note=note)
        for key, words in (
            ("tasks", "tasks"),
            ("show", "show TASK"),
            ("status", "status"),
        )
    ]


if __name__ == "__main__":
    main(measure)
