"""The reference client, talking to our server: run by its own interpreter, which has the
package ``mcp``. Prints one JSON object of what it saw.

    python mcp_client.py MODE WORKSPACE COMMAND...
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters


def plain(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def main(mode: str, workspace: str, command: list[str]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    server = StdioServerParameters(command=command[0], args=command[1:], env=None)
    async with Client(server, mode=mode, read_timeout_seconds=30) as client:
        seen["version"] = client.protocol_version
        seen["server"] = plain(client.server_info) if client.server_info else None
        seen["instructions"] = client.instructions
        seen["tools"] = plain(await client.list_tools())["tools"]
        name = seen["tools"][0]["name"]
        seen["list"] = plain(await client.call_tool(name, {"action": "list"}))
        create = {"action": "create", "workspace": workspace, "request_id": "request-0001"}
        state = {"schema": "handoff-state/2", "goal": {"text": "x"}}
        seen["create"] = plain(await client.call_tool(name, {**create, "state": state}))
        many = await asyncio.gather(
            *(client.call_tool(name, {"action": "list", "limit": n + 1}) for n in range(20))
        )
        seen["many"] = [plain(one)["isError"] for one in many]
        try:
            await client.call_tool("no_such_tool", {})
        except Exception as error:  # what the client makes of our error
            seen["unknown"] = [type(error).__name__, getattr(error, "code", None)]
    return seen


print(json.dumps(asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))))
