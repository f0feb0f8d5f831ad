"""The stub model itself, over real HTTP: each API gives the same script the same way."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest

from tests.live import stub_script
from tests.live.stub_model import StubModel

SCRIPT = [{"say": "I write."}, {"write": {"path": "/w/a.txt", "content": "hi"}}, {"say": "Done."}]
TOOL = {
    "type": "object",
    "properties": {"file_path": {"type": "string"}, "content": {"type": "string"}},
    "required": ["file_path", "content"],
}
TEXT = f"go @@model {json.dumps(SCRIPT)}"


def post(stub: StubModel, path: str, body: Any) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", stub.server_address[1], timeout=5)
    try:
        connection.request("POST", path, json.dumps(body))
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def chat(turns: list[dict[str, Any]], *, stream: bool) -> tuple[str, Any]:
    tool = {"type": "function", "function": {"name": "write_file", "parameters": TOOL}}
    return "/v1/chat/completions", {
        "model": "m",
        "stream": stream,
        "messages": turns,
        "tools": [tool],
    }


def anthropic(turns: list[dict[str, Any]], *, stream: bool) -> tuple[str, Any]:
    tool = {"name": "Write", "input_schema": TOOL}
    body = {"model": "m", "stream": stream, "messages": turns, "tools": [tool]}
    return "/v1/messages?beta=true", body


def responses(turns: list[dict[str, Any]], *, stream: bool) -> tuple[str, Any]:
    tool = {"type": "function", "name": "write_file", "parameters": TOOL}
    return "/v1/responses", {"model": "m", "stream": stream, "input": turns, "tools": [tool]}


def gemini(turns: list[dict[str, Any]], *, stream: bool) -> tuple[str, Any]:
    declared = [{"name": "write_file", "parametersJsonSchema": TOOL}]
    verb = "streamGenerateContent" if stream else "generateContent"
    contents = [{"role": "user", "parts": [{"text": turn["content"]}]} for turn in turns]
    return f"/v1beta/models/m:{verb}", {
        "contents": contents,
        "tools": [{"functionDeclarations": declared}],
    }


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dialect", [chat, anthropic, responses, gemini])
def test_each_api_gets_the_first_message_with_its_fitted_tool_call(
    stub: StubModel, dialect: Any, stream: bool
) -> None:
    path, body = dialect([{"role": "user", "content": TEXT}], stream=stream)
    status, answer = post(stub, path, body)
    assert status == 200
    plain = answer.replace("\\", "")
    assert "write." in plain
    assert '"file_path": "/w/a.txt"' in plain
    assert "Done." not in plain
    [request] = stub.requests
    assert request["step"] == 0
    assert request["calls"] in (["write_file"], ["Write"])


def test_the_step_is_told_by_the_conversation(stub: StubModel) -> None:
    turns = [
        {"role": "user", "content": TEXT},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "written"},
    ]
    path, body = chat(turns, stream=False)
    assert "Done." in post(stub, path, body)[1]
    turns += [
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "and now without a script"},
    ]
    path, body = chat(turns, stream=False)
    assert "stub: ok" in post(stub, path, body)[1]


def test_a_fault_happens_as_often_as_it_says(stub: StubModel) -> None:
    script = [{"error": 500, "times": 2}, {"say": "recovered"}]
    turns = [{"role": "user", "content": f"go @@model {json.dumps(script)}"}]
    path, body = anthropic(turns, stream=False)
    assert [post(stub, path, body)[0] for _ in range(3)] == [500, 500, 200]
    assert stub.count(fault=script[0]) == 2


@pytest.mark.parametrize("fault", [{"cut": True}, {"hang": 0.01}, {"stall": 0.01}])
def test_a_cut_connection_is_cut(stub: StubModel, fault: dict[str, Any]) -> None:
    turns = [{"role": "user", "content": f"go @@model {json.dumps([fault])}"}]
    path, body = chat(turns, stream=True)
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        post(stub, path, body)


def test_a_request_without_tools_is_no_part_of_the_script(stub: StubModel) -> None:
    path, body = chat([{"role": "user", "content": TEXT}], stream=False)
    del body["tools"]
    assert "Stub" in post(stub, path, body)[1]
    assert stub.count(aside=True) == 1


def test_it_remembers_what_the_model_was_told(stub: StubModel) -> None:
    path, body = chat([{"role": "user", "content": 'say "no" to that'}], stream=False)
    post(stub, path, body)
    assert stub.was_told('say "no" to that')
    assert not stub.was_told("something else")


def test_placeholders_come_from_the_conversation() -> None:
    talk = stub_script.Conversation(
        model="m",
        stream=False,
        system="<env>\nWorking directory: /w/tree\n</env>",
        turns=[stub_script.Turn("result", f"x\n{'a' * 40}\nmain\n")],
        tools=[],
    )
    assert stub_script.fill("{cwd} {last} {sha}", talk) == f"/w/tree main {'a' * 40}"


def test_a_question_is_fitted_to_a_nested_schema() -> None:
    schema = {
        "properties": {"questions": {"type": "array", "items": {"$ref": "#/$defs/Q"}}},
        "$defs": {
            "Q": {
                "properties": {
                    "question": {"type": "string"},
                    "header": {"type": "string"},
                    "options": {
                        "type": "array",
                        "items": {
                            "properties": {
                                "label": {"type": "string"},
                                "description": {"type": "string"},
                            }
                        },
                    },
                    "multiSelect": {"type": "boolean"},
                },
                "required": ["question", "header", "options", "multiSelect"],
            }
        },
    }
    made = stub_script.arguments(schema, {"question": "Which?", "options": ["a", "b"]}, schema)
    [question] = made["questions"]
    assert question["question"] == "Which?"
    assert question["multiSelect"] is False
    assert [option["label"] for option in question["options"]] == ["a", "b"]
