"""The executors that Handoff knows, as data.

Everything that differs between agents stands here, so that an agent more is a row more.
The drivers read the fields; :mod:`handoff.executors.detect` reads ``programs``,
``version_argv``, the login evidence and ``install``.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from handoff.errors import ConfigError


class AgentDefinition(msgspec.Struct, frozen=True, omit_defaults=True):
    """One executor.

    ``programs``: names (or absolute paths) to look for, the first that exists is taken.
    ``argv``: what follows the program. ``driver``: which driver speaks to it.
    ``env`` / ``unset``: how its environment differs. ``files``: written below the
    private scratch folder; ``{scratch}`` in ``env`` and ``argv`` stands for that folder.

    ``mode``: the session mode in which it asks; set before the first prompt, and a
    session that can't be put into it is refused. ``model``: how a model is chosen:
    ``session`` (by the protocol), ``argv`` (``model_argv`` with ``{model}``), ``env``
    (``model_env`` names the variable). ``session_meta``: extension fields of its session requests.
    ``resume``: the ways to take up an old session, in order. ``title_is_command``: its permission requests carry the command only as title.
    ``question_tool``: whether its own question tool reaches the coordinator.
    ``ends_on_deny``: a denied permission ends its turn.

    ``login_files``: any of them is evidence of a login (``~`` is the home folder);
    ``login_env``: so is any of these variables. ``login``: the command to log in.
    ``logins``: its own names for logins that ask nobody (a key in its environment).
    ``install``: the command to install it. ``tested``: versions seen to work.
    ``notes``: limits that a person should know.
    """

    name: str
    title: str
    programs: tuple[str, ...]
    argv: tuple[str, ...] = ()
    driver: Literal["acp", "claude", "fake"] = "acp"
    version_argv: tuple[str, ...] = ("--version",)
    env: dict[str, str] = {}
    unset: tuple[str, ...] = ()
    files: dict[str, str] = {}
    mode: str | None = None
    model: Literal["session", "argv", "env", "none"] = "session"
    model_argv: tuple[str, ...] = ()
    model_env: str = ""
    default_model: str | None = None
    session_meta: dict[str, Any] = {}
    resume: tuple[Literal["resume", "load"], ...] = ("resume", "load")
    title_is_command: bool = False
    question_tool: bool = True
    ends_on_deny: bool = False
    login_files: tuple[str, ...] = ()
    login_env: tuple[str, ...] = ()
    login: str = ""
    logins: tuple[str, ...] = ()
    install: str = ""
    tested: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


#: opencode asks for whatever can change something or reach outside; reading stays quiet.
#: The order matters to it: the last rule that fits wins.
OPENCODE_PERMISSION: dict[str, Any] = {
    "*": "ask",
    "read": {"*": "allow", "*.env": "ask", "*.env.*": "ask"},
    "glob": "allow",
    "grep": "allow",
    "list": "allow",
    "lsp": "allow",
    "todoread": "allow",
    "todowrite": "allow",
    "skill": "allow",
    "task": {"*": "ask", "general": "allow", "explore": "allow"},
    "edit": "ask",
    "bash": "ask",
    "webfetch": "ask",
    "websearch": "ask",
    "codesearch": "ask",
    "external_directory": "ask",
    "doom_loop": "ask",
}

#: its built-in agents; any other is asked about before it is begun (``task``)
OPENCODE_AGENTS = ("build", "plan", "general", "explore")

#: A policy of the highest tier: what the user's settings and policies allow is asked too.
GEMINI_POLICY = """\
[[rule]]
toolName = [
  "run_shell_command", "write_file", "replace", "web_fetch", "save_memory", "activate_skill",
  "discovered_tool_*", "mcp_*",
]
decision = "ask_user"
priority = 990
"""

_CLAUDE = AgentDefinition(
    name="claude",
    title="Claude Code",
    programs=("claude",),
    driver="claude",
    model="argv",
    login_files=("~/.claude/.credentials.json",),
    login_env=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
    login="claude /login",
    install="npm install -g @anthropic-ai/claude-code",
    tested=("2.1.332",),
)

_OPENCODE = AgentDefinition(
    name="opencode",
    title="opencode",
    programs=("opencode",),
    argv=("acp",),
    env={
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
    },
    unset=("OPENCODE_ENABLE_QUESTION_TOOL", "OPENCODE_SERVER_PASSWORD"),
    mode="build",
    question_tool=False,
    ends_on_deny=True,
    login_files=("~/.local/share/opencode/auth.json",),
    login_env=("OPENCODE_CONFIG_CONTENT", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"),
    login="opencode auth login",
    install="npm install -g opencode-ai",
    tested=("1.18.33",),
    notes=("it has no question tool over ACP: questions are left at the end of a turn",),
)

_GROK = AgentDefinition(
    name="grok",
    title="Grok",
    programs=("grok",),
    argv=("agent", "--no-leader", "stdio"),
    env={
        "GROK_DISABLE_AUTOUPDATER": "1",
        # A question waits until somebody answers it.
        "GROK_ASK_USER_QUESTION_TIMEOUT_ENABLED": "false",
        # What is allowed is allowed once.
        "GROK_REMEMBER_TOOL_APPROVALS": "false",
        # What runs in the user's Claude Code is no business of this executor.
        "GROK_CLAUDE_HOOKS_ENABLED": "false",
        "GROK_CLAUDE_MCPS_ENABLED": "false",
    },
    resume=("resume", "load"),
    ends_on_deny=True,
    login_files=("~/.grok/auth.json",),
    login_env=("XAI_API_KEY",),
    login="grok login",
    logins=("xai.api_key",),
    install="npm install -g @xai-official/grok",
    tested=("1.0.41",),
    notes=(
        (
            "it obeys allow rules of the user's Claude Code settings; 'handoff doctor' says how to "
            "make it ask all the same"
        ),
    ),
)

_GEMINI = AgentDefinition(
    name="gemini",
    title="Gemini CLI",
    programs=("gemini",),
    argv=("--acp", "--admin-policy", "{scratch}/gemini-ask.toml"),
    env={"GEMINI_CLI_NO_RELAUNCH": "true"},
    files={"gemini-ask.toml": GEMINI_POLICY},
    mode="default",
    model="argv",
    model_argv=("-m", "{model}"),
    resume=("load",),
    title_is_command=True,
    question_tool=False,
    login_files=("~/.gemini/oauth_creds.json",),
    login_env=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    login="gemini",
    logins=("gemini-api-key",),
    install="npm install -g @google/gemini-cli",
    tested=("0.61.0",),
    notes=(
        "it has no question tool over ACP: questions are left at the end of a turn",
        "a session whose process was killed can't be loaded again",
    ),
)

_KIMI = AgentDefinition(
    name="kimi",
    title="Kimi Code",
    programs=("kimi",),
    argv=("acp",),
    mode="default",
    login_files=("~/.kimi-code/config.toml",),
    login="kimi login",
    install="npm install -g @moonshot-ai/kimi-code",
    tested=("2.1.0",),
    notes=("a turn whose process was killed is missing from the session",),
)

_QWEN = AgentDefinition(
    name="qwen",
    title="Qwen Code",
    programs=("qwen",),
    argv=("--acp",),
    mode="default",
    login_files=("~/.qwen/oauth_creds.json",),
    login_env=("OPENAI_API_KEY", "DASHSCOPE_API_KEY"),
    login="qwen",
    install="npm install -g @qwen-code/qwen-code",
    tested=("0.24.4",),
    notes=("allow rules in its own settings (tools.allowed, permissions) are obeyed unasked",),
)

_HERMES = AgentDefinition(
    name="hermes",
    title="Hermes Agent",
    programs=("hermes-acp",),
    mode="default",
    resume=("load", "resume"),
    question_tool=False,
    login_files=("~/.hermes/auth.json", "~/.hermes/.env", "~/.hermes/config.yaml"),
    login_env=("OPENROUTER_API_KEY", "OPENAI_API_KEY"),
    login="hermes setup",
    install="pip install 'hermes-agent[acp]'",
    tested=("0.19.0",),
    notes=(
        "it asks for edits and for commands that it finds dangerous; 'git push' is not among them",
        "a turn that is interrupted while a tool runs may never end",
    ),
)

_CLAUDE_ACP = AgentDefinition(
    name="claude-agent-acp",
    title="Claude Code over ACP",
    programs=("claude-agent-acp",),
    env={"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"},
    unset=("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT"),
    mode="default",
    # The user's and the project's settings hold allow rules.
    session_meta={"claudeCode": {"options": {"settingSources": []}}},
    login_files=_CLAUDE.login_files,
    login_env=_CLAUDE.login_env,
    login="claude /login",
    install="npm install -g @agentclientprotocol/claude-agent-acp",
    tested=("0.101.0",),
    notes=("prefer 'claude': it carries the reason of a denial and needs one process less",),
)

_CODEX_ACP = AgentDefinition(
    name="codex-acp",
    title="Codex over ACP",
    programs=("codex-acp",),
    env={"NO_BROWSER": "1"},
    mode="workspace-write",
    ends_on_deny=True,
    login_files=("~/.codex/auth.json",),
    login_env=("OPENAI_API_KEY", "CODEX_API_KEY"),
    login="codex login",
    logins=("api-key",),
    install="npm install -g @agentclientprotocol/codex-acp",
    tested=("2.6.0",),
    notes=("commands run unasked inside its own sandbox, without network",),
)

_FAKE = AgentDefinition(
    name="fake",
    title="Scripted executor",
    programs=(sys.executable,),
    argv=("-I", "-m", "handoff.executors.fake"),
    version_argv=("-I", "-m", "handoff.executors.fake", "--version"),
    driver="fake",
    mode="ask",
    tested=("1.0",),
    notes=("it plays a script that stands in the plan; it has no model",),
)

#: the executors that come with Handoff, in the order in which people are shown them
BUILT_IN: dict[str, AgentDefinition] = {
    agent.name: agent
    for agent in (
        _CLAUDE,
        _OPENCODE,
        _GROK,
        _GEMINI,
        _QWEN,
        _KIMI,
        _HERMES,
        _CODEX_ACP,
        _CLAUDE_ACP,
        _FAKE,
    )
}


def own(name: str, settings: Any) -> AgentDefinition:
    """An agent of the user's own, from its entry below ``agents`` in the configuration.

    ``settings``: an object or a mapping with ``command`` (words, or one line), and
    optionally ``env``, ``mode``, ``model`` (its default), ``model_argv``, ``model_env``,
    ``question`` (False: it can't ask inside a turn).

    Raises:
        ConfigError: it has no command.
    """
    command = _setting(settings, "command", ())
    if isinstance(command, str):
        command = tuple(shlex.split(command))
    if not command:
        raise ConfigError(
            f"agents.{name}: it needs a command",
            remedy=f"give agents.{name} a command in the configuration",
        )
    model_argv = tuple(_setting(settings, "model_argv", ()))
    model_env = str(_setting(settings, "model_env", ""))
    return AgentDefinition(
        name=name,
        title=name,
        programs=(command[0],),
        argv=tuple(command[1:]),
        version_argv=(),
        env=dict(_setting(settings, "env", {})),
        mode=_setting(settings, "mode", "") or None,
        model="argv" if model_argv else "env" if model_env else "session",
        model_argv=model_argv,
        model_env=model_env,
        default_model=_setting(settings, "model", "") or None,
        question_tool=bool(_setting(settings, "question", True)),
    )


def definitions(agents: Mapping[str, Any] | None = None) -> dict[str, AgentDefinition]:
    """All executors by name: those that come with Handoff and the user's own, which win
    over built-in ones of the same name.

    Raises:
        ConfigError: an entry of the user's can't be used.
    """
    return {**BUILT_IN, **{name: own(name, entry) for name, entry in (agents or {}).items()}}


def _setting(settings: Any, key: str, default: Any) -> Any:
    if isinstance(settings, Mapping):
        return settings.get(key, default)
    return getattr(settings, key, default)
