from __future__ import annotations

import asyncio
import datetime as dt
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509

from handoff.clock import SystemClock
from handoff.errors import ConfigError, StorageError
from handoff.link.keys import MachineKey, load_or_make_key
from handoff.link.tls import (
    Pin,
    ReadBuffer,
    WrongServer,
    certificate_sha256,
    client_context,
    load_or_make_certificate,
    make_certificate,
    server_context,
    small_read_buffers,
)

NOW = SystemClock().now_ms()


class Brain:
    def __init__(self, folder: Path, hosts: tuple[str, ...] = ()) -> None:
        self.key_path = str(folder / "machine.key")
        self.key: MachineKey = load_or_make_key(self.key_path)
        wanted = str(folder / "brain.crt")
        self.certificate = load_or_make_certificate(wanted, self.key, hosts, NOW)
        self.pem = Path(self.certificate).read_bytes()

    @contextmanager
    def serving(self) -> Iterator[int]:
        """Greets whoever gets through the handshake, and echoes one line."""
        context = server_context(self.certificate, self.key_path)
        listener = socket.create_server(("127.0.0.1", 0))
        self.lines: list[bytes] = []

        def serve() -> None:
            while True:
                try:
                    plain, _ = listener.accept()
                except OSError:
                    return
                plain.settimeout(15)
                try:
                    with context.wrap_socket(plain, server_side=True) as tls:
                        line = tls.recv(100)
                        self.lines.append(line)
                        tls.sendall(line)
                except OSError:
                    plain.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            thread.join(20)
            assert not thread.is_alive()


def talk(port: int, context: ssl.SSLContext, name: str = "localhost") -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=15) as plain:
        with context.wrap_socket(plain, server_hostname=name) as tls:
            tls.sendall(b"hello")
            return tls.recv(100)


async def talk_async(port: int, context: ssl.SSLContext) -> bytes:
    reader, writer = await asyncio.wait_for(
        asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost"), 15
    )
    writer.write(b"hello")
    found = await asyncio.wait_for(reader.read(100), 15)
    writer.close()
    await asyncio.wait_for(writer.wait_closed(), 15)
    return found


async def test_the_pinned_brain_is_reached_both_ways(tmp_path: Path) -> None:
    brain = Brain(tmp_path)
    digest = certificate_sha256(brain.pem)
    with brain.serving() as port:
        for pin in (
            Pin(key=brain.key.public),
            Pin(certificate=digest),
            Pin(key=brain.key.public, certificate=digest),
            Pin.of_hex(digest.hex()),
            Pin.of_hex(":".join(f"{b:02X}" for b in digest)),
        ):
            assert await asyncio.to_thread(talk, port, client_context(pin)) == b"hello"
            assert await talk_async(port, client_context(pin)) == b"hello"


async def test_no_byte_reaches_a_server_that_is_not_the_pinned_one(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    brain, other = Brain(tmp_path / "a"), Brain(tmp_path / "b")
    digest = certificate_sha256(brain.pem)
    with other.serving() as port:
        for pin in (
            Pin(key=brain.key.public),
            Pin(certificate=digest),
            Pin(key=brain.key.public, certificate=certificate_sha256(other.pem)),
            Pin(key=other.key.public, certificate=digest),
        ):
            with pytest.raises(WrongServer):
                await asyncio.to_thread(talk, port, client_context(pin))
            with pytest.raises(WrongServer):
                await talk_async(port, client_context(pin))
    assert b"hello" not in other.lines


async def test_without_a_pin_an_authority_decides(tmp_path: Path) -> None:
    brain = Brain(tmp_path)
    with brain.serving() as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            await talk_async(port, client_context())
        # a Go node is given the certificate itself as its authority
        trusted = client_context(authorities=brain.certificate)
        assert await asyncio.to_thread(talk, port, trusted) == b"hello"
        with pytest.raises(ssl.SSLCertVerificationError, match="ostname"):
            await asyncio.to_thread(talk, port, trusted, "elsewhere.example")
        both = client_context(Pin(key=bytes(32)), brain.certificate)
        with pytest.raises(WrongServer):
            await asyncio.to_thread(talk, port, both)


async def test_old_tls_is_not_spoken(tmp_path: Path) -> None:
    brain = Brain(tmp_path)
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname = False
    old.verify_mode = ssl.CERT_NONE
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with brain.serving() as port, pytest.raises(OSError):
        await asyncio.to_thread(talk, port, old)


@pytest.mark.parametrize("small", [False, True])
async def test_a_buffer_that_shrinks_and_grows_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    from asyncio import sslproto

    monkeypatch.setattr(sslproto.SSLProtocol, "max_size", ReadBuffer.LARGE)
    if small:
        small_read_buffers()
        assert sslproto.SSLProtocol.max_size == ReadBuffer.SMALL
    brain = Brain(tmp_path)
    sent = os.urandom(3_000_000)
    sizes: set[int] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        buffer = ReadBuffer(writer.transport)
        protocol = writer.transport._ssl_protocol  # type: ignore[attr-defined]
        got, now = b"", 0.0
        while len(got) < len(sent):
            piece = await reader.read(100_000)
            got += piece
            now += 4.0
            if len(got) // 500_000 % 2:
                buffer.heard(1 << 16, now)
            buffer.rest(now)
            sizes.add(protocol.max_size)
            assert len(protocol._ssl_buffer) <= protocol.max_size
        writer.write(b"whole" if got == sent else b"broken")
        writer.close()
        await writer.wait_closed()

    context = server_context(brain.certificate, brain.key_path)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]

    def client() -> bytes:
        pinned = client_context(Pin(key=brain.key.public))
        with (
            socket.create_connection(("127.0.0.1", port), timeout=15) as plain,
            pinned.wrap_socket(plain, server_hostname="localhost") as tls,
        ):
            for at in range(0, len(sent), 70_001):
                tls.sendall(sent[at : at + 70_001])
            return tls.recv(100)

    try:
        assert await asyncio.to_thread(client) == b"whole"
    finally:
        server.close()
        await server.wait_closed()
    assert sizes == {ReadBuffer.SMALL, ReadBuffer.LARGE}


def test_a_buffer_that_is_not_there_is_left_alone() -> None:
    for transport in (None, object()):
        buffer = ReadBuffer(transport)
        buffer.heard(1 << 20, 1.0)
        buffer.rest(100.0)


def test_a_certificate_is_kept_until_key_or_names_change(tmp_path: Path) -> None:
    brain = Brain(tmp_path)
    again = load_or_make_certificate(brain.certificate, brain.key, (), NOW)
    assert Path(again).read_bytes() == brain.pem
    load_or_make_certificate(brain.certificate, brain.key, ("brain.example", "10.1.2.3"), NOW)
    renewed = Path(brain.certificate).read_bytes()
    assert renewed != brain.pem
    held = x509.load_pem_x509_certificate(renewed)
    names = held.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "brain.example" in names.get_values_for_type(x509.DNSName)
    assert "10.1.2.3" in [str(a) for a in names.get_values_for_type(x509.IPAddress)]
    assert held.not_valid_after_utc - held.not_valid_before_utc == dt.timedelta(days=3650)
    assert os.stat(brain.certificate).st_mode & 0o777 == 0o600


def test_a_certificate_is_renewed_before_its_end_under_the_same_key(tmp_path: Path) -> None:
    brain = Brain(tmp_path)
    days = 86_400_000
    load_or_make_certificate(brain.certificate, brain.key, (), NOW + 3600 * days)
    assert Path(brain.certificate).read_bytes() == brain.pem
    load_or_make_certificate(brain.certificate, brain.key, (), NOW + 3630 * days)
    renewed = Path(brain.certificate).read_bytes()
    assert renewed != brain.pem
    der = ssl.PEM_cert_to_DER_cert(renewed.decode())
    assert Pin(key=brain.key.public).fits(der)


def test_damage_is_reported(tmp_path: Path) -> None:
    brain = Brain(tmp_path)
    Path(brain.certificate).write_bytes(b"nothing")
    with pytest.raises(StorageError, match="no certificate"):
        load_or_make_certificate(brain.certificate, brain.key, (), NOW)
    with pytest.raises(ConfigError):
        server_context(brain.certificate, brain.key_path)
    with pytest.raises(ConfigError):
        server_context(str(tmp_path / "missing"), brain.key_path)
    with pytest.raises(ConfigError):
        client_context(authorities=brain.certificate)
    with pytest.raises(ConfigError):
        certificate_sha256(b"nothing")


def test_a_key_file_open_to_others_serves_nobody(tmp_path: Path) -> None:
    brain = Brain(tmp_path)
    os.chmod(brain.key_path, 0o644)
    with pytest.raises(StorageError, match="open to others"):
        server_context(brain.certificate, brain.key_path)


def test_pins_are_strict() -> None:
    for wrong in ("", "zz" * 32, "00" * 31):
        with pytest.raises(ConfigError):
            Pin.of_hex(wrong)
    with pytest.raises(ConfigError):
        Pin()
    assert not Pin(certificate=bytes(32)).fits(None)
    assert not Pin(key=bytes(32)).fits(b"no certificate")
    with pytest.raises(ConfigError):
        make_certificate(load_or_none(), ("bü.example",), NOW)


def load_or_none() -> MachineKey:
    from handoff.link.keys import new_key

    return new_key()
