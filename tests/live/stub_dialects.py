"""Four model APIs over one :class:`~tests.live.stub_script.Conversation`.

A dialect reads a request and writes a reply, as a stream of server-sent events or whole.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.live.stub_script import Call, Conversation, Tool, Turn

#: (event name or None, data: JSON value or plain text)
Frame = tuple[str | None, Any]


@dataclass
class Reply:
    """What the model says. ``words``: (kind, text, pause in seconds after each word)."""

    id: str
    model: str
    words: list[tuple[str, str, float]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    stop: str | None = None
    tokens: tuple[int, int] = (1, 1)

    @property
    def said(self) -> str:
        return "".join(text for kind, text, _ in self.words if kind == "say")

    def pieces(self) -> Iterator[tuple[str, str]]:
        """(kind, word), with the pauses."""
        for kind, text, pause in self.words:
            for word in re.findall(r"\S+\s*|\s+", text) or [""]:
                yield kind, word
                if pause:
                    time.sleep(pause)

    def call_id(self, index: int) -> str:
        return f"call_{self.id}_{index}"


def text_of(content: Any) -> str:
    """The text in a content value: a string, or blocks with text."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text_of(block) for block in content)
    if isinstance(content, dict):
        return text_of(content.get("text") or content.get("content") or "")
    return ""


class Chat:
    """OpenAI chat.completions."""

    path = re.compile(r"/chat/completions$")

    def read(self, body: dict[str, Any], path: str) -> Conversation:
        turns, system = [], ""
        for message in body.get("messages", []):
            text = text_of(message.get("content"))
            role = message.get("role")
            if role in ("system", "developer"):
                system += text + "\n"
            elif role == "tool":
                turns.append(Turn("result", text))
            elif role == "assistant":
                turns.append(Turn("calls" if message.get("tool_calls") else "assistant", text))
            else:
                turns.append(Turn("user", text))
        functions = [tool.get("function") or tool for tool in body.get("tools") or []]
        tools = [Tool(f.get("name", "?"), f.get("parameters") or {}) for f in functions]
        return Conversation(
            body.get("model", "?"), body.get("stream") is True, system, turns, tools
        )

    def stream(self, reply: Reply) -> Iterator[Frame]:
        base = {
            "id": f"chatcmpl-{reply.id}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": reply.model,
        }

        def chunk(delta: dict[str, Any], finish: str | None = None) -> Frame:
            return None, {
                **base,
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
            }

        yield chunk({"role": "assistant", "content": ""})
        for kind, word in reply.pieces():
            yield chunk({"content" if kind == "say" else "reasoning_content": word})
        for index, call in enumerate(reply.calls):
            function = {"name": call.name, "arguments": json.dumps(call.args)}
            entry = {"index": index, "id": reply.call_id(index), "type": "function"}
            yield chunk({"tool_calls": [{**entry, "function": function}]})
        yield chunk({}, reply.stop or ("tool_calls" if reply.calls else "stop"))
        yield None, {**base, "choices": [], "usage": self._usage(reply)}
        yield None, "[DONE]"

    def whole(self, reply: Reply) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": reply.said}
        if reply.calls:
            message["tool_calls"] = [
                {
                    "id": reply.call_id(index),
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.args)},
                }
                for index, call in enumerate(reply.calls)
            ]
        finish = reply.stop or ("tool_calls" if reply.calls else "stop")
        return {
            "id": f"chatcmpl-{reply.id}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": reply.model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": self._usage(reply),
        }

    def _usage(self, reply: Reply) -> dict[str, int]:
        sent, made = reply.tokens
        return {"prompt_tokens": sent, "completion_tokens": made, "total_tokens": sent + made}

    def error(self, status: int, message: str) -> dict[str, Any]:
        kind = "rate_limit_error" if status == 429 else "server_error"
        return {"error": {"message": message, "type": kind, "code": None, "param": None}}


class Messages:
    """Anthropic Messages."""

    path = re.compile(r"/messages$")

    def read(self, body: dict[str, Any], path: str) -> Conversation:
        turns = []
        system = text_of(body.get("system"))
        for message in body.get("messages", []):
            content = message.get("content")
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            blocks = [b for b in blocks or [] if isinstance(b, dict)]
            text = text_of([b for b in blocks if b.get("type") == "text"])
            if message.get("role") == "assistant":
                calls = any(b.get("type") == "tool_use" for b in blocks)
                turns.append(Turn("calls" if calls else "assistant", text))
            elif message.get("role") == "system":
                system += "\n" + text
            else:
                results = [b for b in blocks if b.get("type") == "tool_result"]
                turns += [Turn("result", text_of(b.get("content"))) for b in results]
                if text:
                    turns.append(Turn("user", text))
        tools = [
            Tool(t.get("name", "?"), t.get("input_schema") or {}) for t in body.get("tools") or []
        ]
        return Conversation(
            body.get("model", "?"), body.get("stream") is True, system, turns, tools
        )

    def stream(self, reply: Reply) -> Iterator[Frame]:
        def named(kind: str, **rest: Any) -> Frame:
            return kind, {"type": kind, **rest}

        head = {**self.whole(reply), "content": [], "stop_reason": None}
        yield named("message_start", message=head)
        index = -1
        open_kind = ""
        for kind, word in reply.pieces():
            if kind != open_kind:
                if open_kind:
                    yield named("content_block_stop", index=index)
                index, open_kind = index + 1, kind
                block = (
                    {"type": "text", "text": ""}
                    if kind == "say"
                    else {"type": "thinking", "thinking": "", "signature": ""}
                )
                yield named("content_block_start", index=index, content_block=block)
            delta = (
                {"type": "text_delta", "text": word}
                if kind == "say"
                else {"type": "thinking_delta", "thinking": word}
            )
            yield named("content_block_delta", index=index, delta=delta)
        if open_kind:
            yield named("content_block_stop", index=index)
        for number, call in enumerate(reply.calls):
            index += 1
            block = {
                "type": "tool_use",
                "id": f"toolu_{reply.call_id(number)}",
                "name": call.name,
                "input": {},
            }
            yield named("content_block_start", index=index, content_block=block)
            delta = {"type": "input_json_delta", "partial_json": json.dumps(call.args)}
            yield named("content_block_delta", index=index, delta=delta)
            yield named("content_block_stop", index=index)
        end = {"stop_reason": self._stop(reply), "stop_sequence": None}
        yield named("message_delta", delta=end, usage={"output_tokens": reply.tokens[1]})
        yield named("message_stop")

    def whole(self, reply: Reply) -> dict[str, Any]:
        content: list[dict[str, Any]] = []
        if reply.said:
            content.append({"type": "text", "text": reply.said})
        for number, call in enumerate(reply.calls):
            found = f"toolu_{reply.call_id(number)}"
            content.append({"type": "tool_use", "id": found, "name": call.name, "input": call.args})
        return {
            "id": f"msg_{reply.id}",
            "type": "message",
            "role": "assistant",
            "model": reply.model,
            "content": content,
            "stop_reason": self._stop(reply),
            "stop_sequence": None,
            "usage": {"input_tokens": reply.tokens[0], "output_tokens": reply.tokens[1]},
        }

    def _stop(self, reply: Reply) -> str:
        return reply.stop or ("tool_use" if reply.calls else "end_turn")

    def error(self, status: int, message: str) -> dict[str, Any]:
        kind = {
            400: "invalid_request_error",
            401: "authentication_error",
            404: "not_found_error",
            429: "rate_limit_error",
            529: "overloaded_error",
        }.get(status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}


class Responses:
    """OpenAI Responses."""

    path = re.compile(r"/responses$")

    def read(self, body: dict[str, Any], path: str) -> Conversation:
        turns: list[Turn] = []
        system = body.get("instructions") or ""
        given = body.get("input")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given or []
        for item in items:
            kind = item.get("type", "message")
            if kind.endswith("_call_output"):
                turns.append(Turn("result", text_of(item.get("output"))))
            elif kind.endswith("_call"):
                if not turns or turns[-1].role != "calls":  # calls in parallel are one message
                    turns.append(Turn("calls", ""))
            elif kind == "message" and item.get("role") in ("system", "developer"):
                system += "\n" + text_of(item.get("content"))
            elif kind == "message":
                role = "user" if item.get("role") == "user" else "assistant"
                turns.append(Turn(role, text_of(item.get("content"))))
        tools = [
            Tool(t["name"], t.get("parameters") or {})
            for t in body.get("tools") or []
            if "name" in t
        ]
        return Conversation(
            body.get("model", "?"), body.get("stream") is True, system, turns, tools
        )

    def stream(self, reply: Reply) -> Iterator[Frame]:
        number = 0

        def named(kind: str, **rest: Any) -> Frame:
            nonlocal number
            number += 1
            return kind, {"type": kind, "sequence_number": number, **rest}

        done = self.whole(reply)
        yield named("response.created", response={**done, "status": "in_progress", "output": []})
        for index, item in enumerate(done["output"]):
            hollow = {**item, "status": "in_progress"}
            if item["type"] == "message":
                hollow["content"] = []
                part = {"type": "output_text", "text": "", "annotations": []}
                place = {"item_id": item["id"], "output_index": index, "content_index": 0}
                yield named("response.output_item.added", output_index=index, item=hollow)
                yield named("response.content_part.added", part=part, **place)
                for kind, word in reply.pieces():
                    if kind == "say":
                        yield named("response.output_text.delta", delta=word, **place)
                yield named("response.output_text.done", text=reply.said, **place)
            else:
                hollow["arguments"] = ""
                place = {"item_id": item["id"], "output_index": index}
                yield named("response.output_item.added", output_index=index, item=hollow)
                yield named(
                    "response.function_call_arguments.done", arguments=item["arguments"], **place
                )
            yield named("response.output_item.done", output_index=index, item=item)
        yield named(f"response.{done['status']}", response=done)

    def whole(self, reply: Reply) -> dict[str, Any]:
        output: list[dict[str, Any]] = []
        if reply.said:
            content = [{"type": "output_text", "text": reply.said, "annotations": []}]
            output.append(
                {
                    "type": "message",
                    "id": f"msg_{reply.id}",
                    "role": "assistant",
                    "status": "completed",
                    "content": content,
                }
            )
        for index, call in enumerate(reply.calls):
            # Codex keeps the tools of an MCP server in a namespace of their own.
            namespace, _, name = call.name.rpartition("/")
            output.append(
                {
                    "type": "function_call",
                    "id": f"fc_{reply.id}_{index}",
                    "call_id": reply.call_id(index),
                    **({"namespace": namespace} if namespace else {}),
                    "name": name,
                    "arguments": json.dumps(call.args),
                    "status": "completed",
                }
            )
        sent, made = reply.tokens
        short = reply.stop == "max_tokens"
        return {
            "id": f"resp_{reply.id}",
            "object": "response",
            "created_at": int(time.time()),
            "model": reply.model,
            "status": "incomplete" if short else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if short else None,
            "error": None,
            "output": output,
            "usage": {
                "input_tokens": sent,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": made,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": sent + made,
            },
        }

    def error(self, status: int, message: str) -> dict[str, Any]:
        return Chat().error(status, message)


class Gemini:
    """Google generateContent."""

    path = re.compile(r":(?:streamGenerateContent|generateContent)$")

    def read(self, body: dict[str, Any], path: str) -> Conversation:
        turns = []
        instruction = body.get("systemInstruction") or body.get("system_instruction") or {}
        for content in body.get("contents") or []:
            parts = [p for p in content.get("parts") or [] if isinstance(p, dict)]
            results = [p["functionResponse"] for p in parts if "functionResponse" in p]
            if any("functionCall" in p for p in parts):
                turns.append(Turn("calls", text_of(parts)))
            elif results:
                turns += [Turn("result", _gemini_result(result)) for result in results]
            else:
                role = "assistant" if content.get("role") == "model" else "user"
                turns.append(Turn(role, text_of(parts)))
        tools = []
        for group in body.get("tools") or []:
            for function in group.get("functionDeclarations") or []:
                schema = function.get("parametersJsonSchema") or function.get("parameters") or {}
                tools.append(Tool(function["name"], _lower_types(schema)))
        named = re.search(r"/models/([^/:]+):", path)
        return Conversation(
            model=named.group(1) if named else "?",
            stream="streamGenerateContent" in path,
            system=text_of(instruction.get("parts")),
            turns=turns,
            tools=tools,
        )

    def stream(self, reply: Reply) -> Iterator[Frame]:
        for kind, word in reply.pieces():
            part: dict[str, Any] = {"text": word}
            if kind == "think":
                part["thought"] = True
            yield None, self._chunk(reply, [part], None)
        for call in reply.calls:
            part = {"functionCall": {"name": call.name, "args": call.args}}
            yield None, self._chunk(reply, [part], None)
        yield None, self._chunk(reply, [{"text": ""}], self._stop(reply))

    def whole(self, reply: Reply) -> dict[str, Any]:
        parts: list[dict[str, Any]] = [{"text": reply.said}]
        parts += [{"functionCall": {"name": c.name, "args": c.args}} for c in reply.calls]
        return self._chunk(reply, parts, self._stop(reply))

    def _stop(self, reply: Reply) -> str:
        return {None: "STOP", "max_tokens": "MAX_TOKENS", "refusal": "SAFETY"}.get(
            reply.stop, reply.stop or "STOP"
        )

    def _chunk(self, reply: Reply, parts: list[Any], finish: str | None) -> dict[str, Any]:
        candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": parts}}
        if finish:
            candidate["finishReason"] = finish
        sent, made = reply.tokens
        usage = {
            "promptTokenCount": sent,
            "candidatesTokenCount": made,
            "totalTokenCount": sent + made,
        }
        return {
            "candidates": [candidate],
            "modelVersion": reply.model,
            "responseId": reply.id,
            "usageMetadata": usage,
        }

    def error(self, status: int, message: str) -> dict[str, Any]:
        kind = "RESOURCE_EXHAUSTED" if status == 429 else "INTERNAL"
        return {"error": {"code": status, "message": message, "status": kind}}


def _gemini_result(result: dict[str, Any]) -> str:
    response = result.get("response")
    if not isinstance(response, dict):
        return text_of(response)
    return "\n".join(v if isinstance(v, str) else json.dumps(v) for v in response.values())


def _lower_types(schema: Any) -> Any:
    """Gemini writes STRING where JSON Schema writes string."""
    if isinstance(schema, dict):
        return {
            key: value.lower() if key == "type" and isinstance(value, str) else _lower_types(value)
            for key, value in schema.items()
        }
    if isinstance(schema, list):
        return [_lower_types(item) for item in schema]
    return schema


DIALECTS = (Chat(), Messages(), Responses(), Gemini())
