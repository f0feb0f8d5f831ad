"""How each executor is pointed at the stub model: what a user would have set up."""

from __future__ import annotations

import json

from tests.live.stub_model import MODEL
from tests.support.home import Home

KEY = "stub-key-not-a-secret"


def claude(home: Home, url: str) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY, "ANTHROPIC_MODEL": MODEL}


def grok(home: Home, url: str) -> dict[str, str]:
    folder = home.path / ".grok"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(
        f"""
[cli]
auto_update = false
[features]
telemetry = false
[models]
default = "{MODEL}"
[model.{MODEL}]
model = "{MODEL}"
base_url = "{url}/v1"
api_key = "{KEY}"
api_backend = "chat_completions"
context_window = 200000
"""
    )
    return {
        "XAI_API_KEY": KEY,
        "GROK_MODELS_BASE_URL": f"{url}/v1",
        "GROK_XAI_API_BASE_URL": f"{url}/v1",
        "GROK_CLI_CHAT_PROXY_BASE_URL": f"{url}/v1",
    }


def opencode(home: Home, url: str) -> dict[str, str]:
    folder = home.path / ".config" / "opencode"
    folder.mkdir(parents=True, exist_ok=True)
    model = {"name": MODEL, "tool_call": True, "limit": {"context": 200000, "output": 8000}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": KEY, "chunkTimeout": 3000},
        "models": {MODEL: model},
    }
    config = {
        "model": f"stub/{MODEL}",
        "small_model": f"stub/{MODEL}",
        "enabled_providers": ["stub"],
        "provider": {"stub": provider},
    }
    (folder / "opencode.json").write_text(json.dumps(config))
    # Its call for a plugin package has no switch: a closed port answers at once.
    return {"OPENCODE_DISABLE_MODELS_FETCH": "1", "npm_config_registry": "http://127.0.0.1:9"}


def gemini(home: Home, url: str) -> dict[str, str]:
    folder = home.path / ".gemini"
    folder.mkdir(exist_ok=True)
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "model": {"name": MODEL},
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    return {
        "GEMINI_API_KEY": KEY,
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_MODEL": MODEL,
        # It runs commands with GIT_CONFIG_GLOBAL=/dev/null: ~/.gitconfig does not count.
        "GIT_AUTHOR_NAME": "Ada Tester",
        "GIT_AUTHOR_EMAIL": "ada@example.invalid",
        "GIT_COMMITTER_NAME": "Ada Tester",
        "GIT_COMMITTER_EMAIL": "ada@example.invalid",
    }


SETUPS = {"claude": claude, "grok": grok, "opencode": opencode, "gemini": gemini}
