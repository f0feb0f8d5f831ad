from __future__ import annotations

import pytest

from handoff.sessions.environment import EXACT, PREFIXES, scrub
from handoff.sessions.launch import names

GONE = [
    "HERMES_YOLO_MODE",
    "HERMES_NONINTERACTIVE",
    "HERMES_ACP_AUTO_APPROVE",
    "HERMES_EXEC_ASK",
    "HERMES_ACCEPT_HOOKS",
    "HERMES_SESSION_ID",
    "HERMES_SESSION_KEY",
    "HERMES_PLATFORM",
    "HERMES_SINGLE_QUERY_SESSION",
    "HERMES_TUI_QUERY",
    "HERMES_KANBAN_TASK",
    "HERMES_CRON_SESSION",
    "HERMES_WORKER_ID",
    "CLAUDE_CODE_SESSION_ID",
    "CODEX_THREAD_ID",
    "AGENT_SESSION_ID",
    "HANDOFF_ATTEMPT",
    "HANDOFF_NONCE_FD",
    "HANDOFF_NONCE_INODE",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_KEY_0",
    "PYTEST_CURRENT_TEST",
    "PYTHONSTARTUP",
    "LD_PRELOAD",
    "DYLD_INSERT_LIBRARIES",
]
STAYS = [
    "HERMES_HOME",
    "PATH",
    "HOME",
    "LANG",
    "TERM",
    "HTTPS_PROXY",
    "SSL_CERT_FILE",
    "OPENAI_API_KEY",
    "GIT_SSH_COMMAND",
    "GIT_AUTHOR_NAME",
]


def test_what_goes_and_what_stays() -> None:
    env = {name: f"value of {name}" for name in [*GONE, *STAYS, "HERMES_FUTURE"]}
    done = scrub(env)
    assert [name for name, _ in done.removed] == sorted(GONE)
    assert done.env == {name: f"value of {name}" for name in [*STAYS, "HERMES_FUTURE"]}
    assert done.unknown == ["HERMES_FUTURE"]
    assert "value of" not in str(done.removed)


@pytest.mark.parametrize("name", GONE)
def test_each_removal_has_a_reason(name: str) -> None:
    ((_, reason),) = scrub({name: "1"}).removed
    assert reason in {*EXACT, *PREFIXES}


def test_names_come_in_lists_that_fit_an_event() -> None:
    pairs = [(f"HERMES_SESSION_{'X' * 150}{n:03}", "r") for n in range(100)]
    lists = names(pairs)
    assert [name for part in lists for name in part] == [name for name, _ in pairs]
    assert max(sum(len(name) + 4 for name in part) for part in lists) <= 1500
    assert names([]) == []
    assert names([("GIT_CONFIG\udcff", "r")]) == [["GIT_CONFIG\\udcff"]]
