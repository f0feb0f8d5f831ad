"""A node that behaves as the ones written in Go do, with their faults: v0.1.4 (plain) and
v0.2.0 (sealed session, output in chunks). Everything they run goes through one bash whose
input is the command pipe; calls are done one after another.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import pathlib
import shlex
import signal
import ssl
import sys
import time
from typing import Any, Self

from cryptography.hazmat.primitives import hashes, hmac, serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from websockets.asyncio.client import ClientConnection, connect

TS = "2026-09-01T08:00:00.000Z"


def _b64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _from_b64url(text: str) -> bytes:
    assert "=" not in text
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    return HKDF(hashes.SHA256(), 32, salt, info).derive(secret)


def _proof(key: bytes, text: bytes) -> str:
    made = hmac.HMAC(key, hashes.SHA256())
    made.update(text)
    return _b64url(made.finalize())


class Shell:
    """The one shell."""

    def __init__(self) -> None:
        self._number = 0
        self._process: asyncio.subprocess.Process | None = None

    async def run(self, command: str, cwd: str, limit: float) -> tuple[str, int, bytes, str]:
        """status, exit code, stdout, stderr."""
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                "bash", "--noprofile", "--norc",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL, limit=1 << 20, start_new_session=True,
                env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "PS1": ""},
            )  # fmt: skip
        process, self._number = self._process, self._number + 1
        assert process.stdin is not None
        if process.returncode is not None:
            return "error", -1, b"", ""
        number = self._number
        moved = f"cd {shlex.quote(cwd)}\n" if cwd else ""
        frame = (
            f"printf '__BEGIN_{number}__\\n'\n{moved}eval {shlex.quote(command)}\n__rc=$?\n"
            f"printf '__END_{number}__\\nEXIT %d\\n' $__rc\nprintf '__CWD_{number}__%s\\n' \"$PWD\"\n"
        )
        with contextlib.suppress(ConnectionError):
            process.stdin.write(frame.encode())
            await process.stdin.drain()
        try:
            return await asyncio.wait_for(self._collect(number), limit)
        except TimeoutError:
            return "timeout", -1, b"", ""

    async def _collect(self, number: int) -> tuple[str, int, bytes, str]:
        assert self._process is not None
        assert self._process.stdout is not None
        code, lines = -1, []
        while line := await self._process.stdout.readline():
            word = line.rstrip(b"\n")
            if word.startswith(f"__CWD_{number}__".encode()):
                noise = f"> __END_{number}__\n"
                return ("ok" if code == 0 else "error"), code, b"".join(lines), noise
            if word.startswith(b"EXIT "):
                code = int(word[5:]) if word[5:].isdigit() else code
            elif word not in (f"__BEGIN_{number}__".encode(), f"__END_{number}__".encode()):
                lines.append(line)
        await self._process.wait()
        return "error", -1, b"".join(lines), ""

    async def close(self) -> None:
        """End the shell and, other than a Go node does, what it has started."""
        if self._process is None:
            return
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError, ValueError):
                stat = pathlib.Path(f"/proc/{int(entry)}/stat").read_text().rpartition(")")[2]
                if int(stat.split()[3]) == self._process.pid > 1:
                    os.kill(int(entry), signal.SIGKILL)
        await self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()


class GoNode:
    """``async with GoNode(url, name, token, [root]) as node`` while it is connected."""

    def __init__(
        self, url: str, name: str, token: str, roots: list[pathlib.Path], version: str = "0.1.4"
    ) -> None:
        self.url, self.name, self.token = url, name, token
        self.roots = roots
        self.version = version
        #: its ca_cert, for wss
        self.trusts: ssl.SSLContext | None = None
        self.sealed = version >= "0.2"
        self.chunks = False
        self.asked: list[dict[str, Any]] = []
        self.closed: tuple[int, str] | None = None
        self._shell = Shell()
        self._key: bytes | None = None

    async def __aenter__(self) -> Self:
        self._socket: ClientConnection = await connect(
            self.url.rstrip("/") + "/ws/nodes",
            max_size=None,
            ping_interval=None,
            proxy=None,
            ssl=self.trusts,
        )
        await self._greet()
        self._task = asyncio.create_task(self._serve())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._socket.close()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._shell.close()

    async def _greet(self) -> None:
        abilities = ["exec", "read", "write"]
        hello: dict[str, Any] = {
            "type": "hello", "protocol_version": "0.1.0", "node_name": self.name,
            "node_version": self.version, "platform": "linux", "arch": "amd64", "ts": TS,
        }  # fmt: skip
        private = X25519PrivateKey.generate()
        if self.sealed:
            abilities.insert(1, "exec_chunk")
            raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
            hello |= {"e2e": True, "ecdh_pub": _b64url(private.public_key().public_bytes(*raw))}
        hello["capabilities"] = abilities
        await self._socket.send(json.dumps(hello, sort_keys=True))
        ack = json.loads(await self._socket.recv())
        assert ack["type"] == "hello_ack", ack
        self.chunks = self.sealed and "exec_chunk" in ack.get("capabilities", [])
        auth = {"type": "auth", "node_name": self.name, "ts": TS}
        key = b""
        if self.sealed and "ecdh_pub" in ack:
            theirs = X25519PublicKey.from_public_bytes(_from_b64url(ack["ecdh_pub"]))
            info = b"hermes-node-e2e-v1" + self.token.encode()
            key = _hkdf(private.exchange(theirs), _from_b64url(ack["salt"]), info)
            auth["proof"] = _proof(key, b"client-auth")
        else:
            auth["token"] = self.token
        await self._socket.send(json.dumps(auth, sort_keys=True))
        answer = json.loads(await self._socket.recv())
        assert answer["type"] == "auth_ok", answer
        assert answer["session_id"] == ack["session_id"]
        if key:
            assert answer["proof"] == _proof(key, b"server-auth")
            self._key = _hkdf(key, ack["session_id"].encode(), b"hermes-node-session-v1")

    async def _say(self, value: dict[str, Any]) -> None:
        text = json.dumps(value, sort_keys=True)
        if self._key is not None:
            nonce = os.urandom(12)
            data = nonce + AESGCM(self._key).encrypt(nonce, text.encode(), None)
            text = json.dumps({"type": "enc", "ts": TS, "data": _b64url(data)})
        await self._socket.send(text)

    def _heard(self, text: str | bytes) -> dict[str, Any]:
        value = json.loads(text)
        if self._key is not None and value["type"] == "enc":
            data = _from_b64url(value["data"])
            value = json.loads(AESGCM(self._key).decrypt(data[:12], data[12:], None))
        assert isinstance(value, dict)
        return value

    async def _serve(self) -> None:
        await self._say({"type": "ping", "ts": TS})
        async for text in self._socket:
            message = self._heard(text)
            kind = message["type"]
            if kind in ("pong", "bye"):
                continue
            self.asked.append(message)
            work = {"exec": self._exec, "read": self._read, "write": self._write}.get(kind)
            if work is None:
                await self._error(message, 5001, "unknown_message")
            else:
                await work(message)

    async def _error(self, message: dict[str, Any], code: int, reason: str) -> None:
        known = {"id": message["id"]} if "id" in message else {}
        await self._say({"type": "error", "code": code, "reason": reason, "detail": "", **known})

    async def _exec(self, message: dict[str, Any]) -> None:
        if not message.get("command"):
            await self._error(message, 4000, "bad_request")
            return
        limit = min(600, max(1, message.get("timeout_ms", 60_000) / 1000))
        began = time.monotonic()
        status, code, out, err = await self._shell.run(
            message["command"], message.get("cwd", ""), limit
        )
        took = round((time.monotonic() - began) * 1000)
        if not self.chunks:
            await self._say(
                {
                    "type": "exec_result",
                    "id": message["id"],
                    "status": status,
                    "exit_code": code,
                    "stdout": out.decode("utf-8", "replace"),
                    "stderr": err,
                    "duration_ms": took,
                    "truncated": False,
                }
            )
            return
        seq = 0
        for at in range(0, len(out), 4096):
            seq += 1
            data = base64.b64encode(out[at : at + 4096]).decode()
            await self._say(
                {"type": "exec_chunk", "id": message["id"], "seq": seq, "data": data, "more": True}
            )
        last = {"type": "exec_chunk", "id": message["id"], "seq": seq + 1, "data": "",
                "more": False, "status": status}  # fmt: skip
        last |= {"exit_code": code} if code else {}
        await self._say(last | ({"duration_ms": took} if took else {}))

    def _allowed(self, path: str) -> bool:
        real = pathlib.Path(os.path.realpath(path))
        return any(root in (real, *real.parents) for root in self.roots)

    async def _read(self, message: dict[str, Any]) -> None:
        path, done = message["path"], {"type": "read_result", "id": message["id"]}
        if not self._allowed(path):
            failed = {"error": "path_not_allowed", "error_detail": path}
        elif not os.path.exists(path):
            failed = {"error": "file_not_found", "error_detail": path}
        elif os.path.isdir(path):
            failed = {"error": "io_error", "error_detail": "is a directory"}
        else:
            data = pathlib.Path(path).read_bytes()
            more = {"content_b64": base64.b64encode(data).decode(), "size_bytes": len(data)}
            await self._say({**done, "status": "ok", **(more if data else {})})
            return
        await self._say({**done, "status": "error", **failed})

    async def _write(self, message: dict[str, Any]) -> None:
        if not message.get("content_b64"):
            await self._error(message, 4000, "bad_request")
            return
        path, done = message["path"], {"type": "write_result", "id": message["id"]}
        data = base64.b64decode(message["content_b64"], validate=True)
        if not self._allowed(path):
            failed = {"error": "path_not_allowed", "error_detail": path}
        elif message.get("mode") == "create" and os.path.exists(path):
            failed = {"error": "io_error", "error_detail": "file exists"}
        else:
            with open(path, "ab" if message.get("mode") == "append" else "wb") as file:
                file.write(data)
            await self._say({**done, "status": "ok", "bytes_written": len(data)})
            return
        await self._say({**done, "status": "error", **failed})


if __name__ == "__main__":  # for trying by hand: URL NAME TOKEN ROOT [VERSION]

    async def _stay() -> None:
        url, name, token, root, *more = sys.argv[1:]
        async with GoNode(url, name, token, [pathlib.Path(root)], *more) as node:
            await node._task

    asyncio.run(_stay())
