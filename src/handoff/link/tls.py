"""TLS between brain and node: a self-signed certificate, and a pin in place of an authority.

The brain's certificate is made from its ed25519 machine key and serves ten years; a pin
names either that key or, as the Go node's ``pinned_cert_sha256`` does, the certificate's
SHA-256. The pin is looked at within the TLS handshake, so that to a wrong server no byte of
ours is ever sent.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import ipaddress
import os
import ssl
from asyncio import sslproto
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from handoff.errors import ConfigError, StorageError
from handoff.link.files import read_private, write_new, write_private
from handoff.link.keys import MachineKey

__all__ = [
    "Pin",
    "ReadBuffer",
    "WrongServer",
    "certificate_sha256",
    "client_context",
    "load_or_make_certificate",
    "make_certificate",
    "server_context",
    "small_read_buffers",
]

#: days that a certificate serves; pins, not dates, are what is trusted
LIFETIME_DAYS = 3650
#: days before its end at which it is made anew, for those who go by an authority
RENEW_DAYS = 30


class WrongServer(ssl.SSLCertVerificationError):
    """The server's certificate or key is not the pinned one."""


@dataclass(frozen=True, slots=True)
class Pin:
    """``key``: an ed25519 public key; ``certificate``: the SHA-256 of a certificate. At
    least one; both must fit if both are given."""

    key: bytes = b""
    certificate: bytes = b""

    def __post_init__(self) -> None:
        if not self.key and not self.certificate:
            raise ConfigError("a pin needs a key or a certificate's digest")

    @classmethod
    def of_hex(cls, digest: str) -> Pin:
        """The pin of a Go node's ``pinned_cert_sha256``: 64 hexadecimal digits, colons
        allowed.

        Raises:
            ConfigError: it is not that.
        """
        try:
            raw = bytes.fromhex(digest.replace(":", "").strip())
        except ValueError:
            raw = b""
        if len(raw) != 32:
            raise ConfigError("a pinned certificate is written as 64 hexadecimal digits")
        return cls(certificate=raw)

    def fits(self, der: bytes | None) -> bool:
        """Whether a certificate is the one."""
        if not der:
            return False
        digest = hashlib.sha256(der).digest()
        if self.certificate and not hmac.compare_digest(digest, self.certificate):
            return False
        return not self.key or hmac.compare_digest(_public_of(der), self.key)


def _public_of(der: bytes) -> bytes:
    try:
        key = x509.load_der_x509_certificate(der).public_key()
    except Exception:  # whatever a hostile certificate makes of the parser: not the key
        return b""
    return key.public_bytes_raw() if isinstance(key, Ed25519PublicKey) else b""


def make_certificate(key: MachineKey, hosts: Sequence[str], now_ms: int) -> bytes:
    """A self-signed certificate for these names and addresses, in PEM. ``now_ms``: wall
    clock; it serves from a day before."""
    private = Ed25519PrivateKey.from_private_bytes(key.private)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "brain of Handoff")])
    start = dt.datetime.fromtimestamp(now_ms // 1000, dt.UTC) - dt.timedelta(days=1)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + dt.timedelta(days=LIFETIME_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectAlternativeName(_names(hosts)), critical=False)
    )
    return built.sign(private, None).public_bytes(Encoding.PEM)


def _names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for host in dict.fromkeys(("localhost", "127.0.0.1", "::1", *hosts)):
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            if not host or not host.isascii():
                raise ConfigError(f"'{host}' is no name or address for a certificate") from None
            found.append(x509.DNSName(host))
    return found


def load_or_make_certificate(path: str, key: MachineKey, hosts: Sequence[str], now_ms: int) -> str:
    """The certificate file of that key, made if there is none, or if it is of another key or
    other names or nearly over; its path.

    Raises:
        StorageError: it can't be read or written.
    """
    path = os.path.abspath(path)
    try:
        held = x509.load_pem_x509_certificate(read_private(path))
        public = held.public_key()
        names = held.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        if (
            isinstance(public, Ed25519PublicKey)
            and public.public_bytes_raw() == key.public
            and set(_names(hosts)) <= set(names)
            and held.not_valid_after_utc.timestamp() - now_ms / 1000 > RENEW_DAYS * 86_400
        ):
            return path
        write_private(path, make_certificate(key, hosts, now_ms))
    except FileNotFoundError:
        write_new(path, make_certificate(key, hosts, now_ms))
    except (ValueError, x509.ExtensionNotFound) as error:
        raise StorageError(f"{path} holds no certificate", path=path) from error
    return path


def certificate_sha256(pem: bytes) -> bytes:
    """The SHA-256 by which a certificate is pinned.

    Raises:
        ConfigError: it is no certificate.
    """
    try:
        held = x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise ConfigError("that is no certificate in PEM") from error
    return hashlib.sha256(held.public_bytes(Encoding.DER)).digest()


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """The brain's side, TLS 1.2 or newer (Go nodes need no more).

    Args:
        certificate: path of the certificate, or of a chain that begins with it.
        key: path of its private key.

    Raises:
        ConfigError: they can't be used together.
        StorageError: the key file is open to others.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Nobody resumes a session here, and a ticket costs 6 KiB of each open connection.
    context.num_tickets = 0
    try:
        read_private(key)
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"the certificate {certificate} and the key {key} can't be used: {error}"
        ) from error
    return context


def client_context(pin: Pin | None = None, authorities: str | None = None) -> ssl.SSLContext:
    """The node's side, TLS 1.2 or newer.

    Without a pin, a certificate must come from an authority (of the file ``authorities``, or
    of the system) and name the host. With a pin and no ``authorities``, the pin alone
    decides. With both, both must hold.

    Raises:
        ConfigError: the file holds no certificates.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if authorities is not None:
        try:
            context.load_verify_locations(authorities)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"{authorities} holds no certificates: {error}") from error
    elif pin is None:
        context.load_default_certs()
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if pin is not None:
        context.sslobject_class = _pinned_object(pin)
        context.sslsocket_class = _pinned_socket(pin)
    return context


def small_read_buffers() -> None:
    """Let TLS connections of this process begin with the small buffer of
    :class:`ReadBuffer`: for a brain, of which a thousand nodes may ask at once. What is
    allocated large and given back leaves holes that nothing else fills."""
    if isinstance(getattr(sslproto.SSLProtocol, "max_size", None), int):
        sslproto.SSLProtocol.max_size = ReadBuffer.SMALL


class ReadBuffer:
    """The buffer into which asyncio reads a TLS connection: 256 KiB of its own accord, here
    small while little arrives. A brain holds a thousand connections that mostly idle.

    It lies in attributes of asyncio's that are not public (the same from Python 3.11 to
    3.14); where they are missing, or the connection is not TLS, nothing is done.

    Args:
        transport: the connection's transport.
    """

    #: bytes while little arrives, while much does, and seconds until little is believed
    SMALL, LARGE, REST_S = 1024, 256 * 1024, 10.0
    #: bytes of a message from which on much arrives
    MUCH = 8 * 1024

    __slots__ = ("_large", "_last", "_protocol")

    def __init__(self, transport: object) -> None:
        protocol: Any = getattr(transport, "_ssl_protocol", None)
        fitting = all(
            isinstance(getattr(protocol, name, None), kind)
            for name, kind in (
                ("max_size", int),
                ("_ssl_buffer", bytearray),
                ("_ssl_buffer_view", memoryview),
            )
        )
        self._protocol = protocol if fitting else None
        self._large = fitting and protocol.max_size > self.SMALL
        self._last = 0.0

    def heard(self, size: int, now: float) -> None:
        """So many bytes arrived in one message; seconds of the monotonic clock."""
        if size >= self.MUCH:
            self._last = now
            if not self._large:
                self._fit(self.LARGE)
                self._large = True

    def rest(self, now: float) -> None:
        """Give the large one back if little has arrived of late."""
        if self._large and now - self._last >= self.REST_S:
            self._fit(self.SMALL)
            self._large = False

    def _fit(self, size: int) -> None:
        protocol = self._protocol
        if protocol is None:
            return
        # asyncio asks for the buffer, fills it and empties it in one step of its loop, of
        # which this is never a part; it makes a larger one itself when max_size allows it.
        protocol.max_size = size
        if len(protocol._ssl_buffer) > size:
            protocol._ssl_buffer = bytearray(size)
            protocol._ssl_buffer_view = memoryview(protocol._ssl_buffer)


def _check(pin: Pin, der: bytes | None) -> None:
    if not pin.fits(der):
        raise WrongServer("the server's certificate is not the pinned one")


def _pinned_object(pin: Pin) -> type[ssl.SSLObject]:
    class PinnedObject(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            _check(pin, self.getpeercert(binary_form=True))

    return PinnedObject


def _pinned_socket(pin: Pin) -> type[ssl.SSLSocket]:
    class PinnedSocket(ssl.SSLSocket):
        def do_handshake(self, *args: Any, **kwargs: Any) -> None:
            super().do_handshake(*args, **kwargs)
            _check(pin, self.getpeercert(binary_form=True))

    return PinnedSocket
