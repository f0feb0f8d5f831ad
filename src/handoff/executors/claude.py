"""Claude Code: how it is started. The driver is :class:`ClaudeDriver`.

Everything that could open its gate is shut at the start: no settings file of the user or
of the project is read, no MCP server is loaded, the permission mode is ``manual``, every
request that it would show a person comes to us, and we only ever allow once. Work beside
the conversation (background commands and sub-agents, timers, other worktrees) is switched
off, because it would go on after the turn has been reported as ended.
"""

from __future__ import annotations

from handoff.executors.claude_driver import ClaudeDriver
from handoff.executors.contract import Launch, LaunchRequest

__all__ = ["ClaudeDriver", "launch"]

#: tools that work beside the conversation, outside the worktree or with other sessions
DISALLOWED = (
    "CronCreate,CronDelete,CronList,DesignSync,EnterWorktree,ExitWorktree,ListAgents,"
    "Monitor,RemoteTrigger,ScheduleWakeup,SendMessage,Workflow"
)

ENV = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    # A stalled model would otherwise end no turn, ever. 180 s is the executor's own limit
    # for its maker's servers; through a gateway it has none.
    "CLAUDE_ENABLE_BYTE_WATCHDOG": "1",
    "CLAUDE_ENABLE_STREAM_WATCHDOG": "1",
    "CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS": "180000",
    "CLAUDE_STREAM_IDLE_TIMEOUT_MS": "180000",
    # Since 2.1 sub-agents run in the background unless this is set: the turn's result
    # comes before their work is done, and they would ask when no turn runs.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_DISABLE_CRON": "1",
    "CLAUDE_CODE_DISABLE_TERMINAL_TITLE": "1",
}

#: marks of an enclosing Claude Code, which a nested one would take for its own
UNSET = (
    "CLAUDECODE",
    "CLAUDE_CODE_CHILD_SESSION",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_EXECPATH",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_SSE_PORT",
)

#: ``--setting-sources=`` also keeps the project's CLAUDE.md out of the context.
MEMORY_NOTE = (
    "If the root of the repository holds a CLAUDE.md or an AGENTS.md, read it before you "
    "begin: it holds the project's own rules."
)


def launch(request: LaunchRequest) -> Launch:
    """How to start ``claude`` for one task. The standing instructions travel in a file."""
    instructions = "\n\n".join(part for part in (request.instructions, MEMORY_NOTE) if part)
    argv = [
        request.program,
        "-p",
        "--input-format",
        "stream-json",
        "--output-format",
        "stream-json",
        "--verbose",
        "--include-partial-messages",
        "--forward-subagent-text",
        "--permission-prompt-tool",
        "stdio",
        "--permission-mode",
        "manual",
        "--setting-sources=",
        "--strict-mcp-config",
        "--disallowedTools",
        DISALLOWED,
        f"--resume={request.resume}" if request.resume else f"--session-id={request.new_id}",
        "--append-system-prompt-file",
        f"{request.scratch}/instructions.md",
    ]
    if request.model:
        argv += ["--model", request.model]
    return Launch(
        argv=tuple(argv),
        env={**ENV, **request.env},
        unset=UNSET,
        files={"instructions.md": instructions + "\n"},
        instructed=True,
    )
