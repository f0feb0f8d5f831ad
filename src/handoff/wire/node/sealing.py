"""Keys and seals of a session: the Go node's scheme (v1) and ours (v2).

Both start from an ephemeral X25519 key on each side. v1 is that of Go node v0.2.0: proofs
over constants, one key for both directions, random nonces. v2 is ours: the proofs cover
every byte of the handshake, each direction has its own key, and the nonce is the frame's
number, so that a frame can be neither replayed, reflected, reordered nor left out.

Curves, signatures and AES-GCM come in as a :class:`Ciphers`; HKDF and HMAC are of the
standard library (RFC 5869, RFC 2104).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Protocol

__all__ = [
    "Aead",
    "BadSeal",
    "Ciphers",
    "CounterSeal",
    "Handshake",
    "RandomSeal",
    "b64url",
    "from_b64url",
    "hkdf",
]

Random = Callable[[int], bytes]

NONCE = 12
TAG = 16
KEY = 32
_B64URL = re.compile(r"[A-Za-z0-9_-]*")
_V1_INFO = b"hermes-node-e2e-v1"
_V1_SESSION = b"hermes-node-session-v1"
_V2_INFO = b"handoff-node-e2e2"
_CLIENT = b"client-auth"
_SERVER = b"server-auth"
#: nonces of a v1 session that are remembered, so that none is taken twice
V1_FRAMES = 1 << 16


class Aead(Protocol):
    """AES-256-GCM under one key."""

    def encrypt(
        self, nonce: bytes, data: bytes | memoryview, associated_data: bytes | None
    ) -> bytes:
        """Ciphertext and tag."""
        ...

    def decrypt(
        self, nonce: bytes, data: bytes | memoryview, associated_data: bytes | None
    ) -> bytes:
        """The plaintext; raises an exception of the library's if the tag does not fit."""
        ...


class Ciphers(Protocol):
    """What the machines need of a cryptographic library. Keys are 32 raw bytes."""

    def x25519_public(self, private: bytes) -> bytes:
        """The public key."""
        ...

    def x25519(self, private: bytes, public: bytes) -> bytes:
        """The shared secret; ValueError for a point of low order."""
        ...

    def aead(self, key: bytes) -> Aead:
        """AES-256-GCM under that key."""
        ...

    def ed25519_public(self, private: bytes) -> bytes:
        """The public key."""
        ...

    def sign(self, private: bytes, data: bytes) -> bytes:
        """An ed25519 signature, 64 bytes."""
        ...

    def verify(self, public: bytes, signature: bytes, data: bytes) -> bool:
        """Whether an ed25519 signature is right."""
        ...


class BadSeal(Exception):
    """A sealed frame can't be opened. ``reason`` is a key of the closing table."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def b64url(data: bytes) -> str:
    """base64url without padding, as all key material in a handshake."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def from_b64url(value: str, size: int = 0) -> bytes:
    """Its inverse; padding is refused, as the Go node does.

    Raises:
        ValueError: it is not base64url, or not of that size.
    """
    if len(value) % 4 == 1 or not _B64URL.fullmatch(value):
        raise ValueError("not base64url without padding")
    raw = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
    if size and len(raw) != size:
        raise ValueError(f"not {size} bytes")
    return raw


def hkdf(secret: bytes, salt: bytes, info: bytes, size: int = KEY) -> bytes:
    """HKDF-SHA256 (RFC 5869), at most 255 x 32 bytes."""
    key = hmac.digest(salt or bytes(32), secret, "sha256")
    block, made = b"", b""
    for count in range(1, -(-size // 32) + 1):
        block = hmac.digest(key, block + info + bytes((count,)), "sha256")
        made += block
    return made[:size]


class Handshake:
    """The key schedule of one handshake.

    Args:
        ciphers: the library.
        private: this side's fresh X25519 key.
        public: the other side's.
        salt: of the hello_ack.
        token: the node's token, or b"" where keys sign.
        hello, ack: those two frames as they went over the wire; empty for v1.

    Raises:
        ValueError: the other side's key is none.
    """

    __slots__ = ("_ack", "_hello", "_key", "_v2", "transcript")

    def __init__(
        self,
        ciphers: Ciphers,
        private: bytes,
        public: bytes,
        salt: bytes,
        token: bytes,
        hello: bytes = b"",
        ack: bytes = b"",
    ) -> None:
        shared = ciphers.x25519(private, public)
        self._v2 = bool(hello)
        self.transcript = transcript(hello, ack) if hello else b""
        if self._v2:
            self._key = hkdf(shared, self.transcript + salt, _V2_INFO + token)
        else:
            self._key = hkdf(shared, salt, _V1_INFO + token)

    def client_proof(self) -> bytes:
        """That the node knows the token."""
        return hmac.digest(self._key, _CLIENT + self.transcript, "sha256")

    def server_proof(self, auth: bytes = b"") -> bytes:
        """That the brain knows it; in v2 over the auth frame too."""
        said = hashlib.sha256(self.transcript + auth).digest() if self._v2 else b""
        return hmac.digest(self._key, _SERVER + said, "sha256")

    def session_key(self, session_id: str) -> bytes:
        """The one key of a v1 session."""
        return hkdf(self._key, session_id.encode(), _V1_SESSION)

    def keys(self, auth: bytes) -> tuple[bytes, bytes]:
        """The keys of a v2 session: from the node, from the brain."""
        salt = hashlib.sha256(self.transcript + auth).digest()
        both = hkdf(self._key, salt, _V2_INFO + b"-session", 2 * KEY)
        return both[:KEY], both[KEY:]


def transcript(*frames: bytes) -> bytes:
    """SHA-256 over the frames with their lengths."""
    said = hashlib.sha256(_V2_INFO)
    for frame in frames:
        said.update(len(frame).to_bytes(8, "big"))
        said.update(frame)
    return said.digest()


def to_sign(role: bytes, said: bytes) -> bytes:
    """What an ed25519 key signs: never the bare digest, never the other role's."""
    return _V2_INFO + b"-" + role + b"\0" + said


class RandomSeal:
    """v1: one key, random nonces; ``nonce || ciphertext || tag`` as base64url.

    With ``once``, what was sealed here is never opened here (a reflected frame), and nothing
    is opened twice, for as many frames as can be remembered. A node needs that: it acts on
    what it opens. A brain takes each result once anyway.
    """

    __slots__ = ("_aead", "_random", "_seen")

    def __init__(self, aead: Aead, random: Random, *, once: bool = True) -> None:
        self._aead = aead
        self._random = random
        self._seen: set[bytes] | None = set() if once else None

    def seal(self, text: bytes) -> str:
        """The ``data`` of an ``enc`` message."""
        nonce = self._random(NONCE)
        self._remember(nonce)
        return b64url(nonce + self._aead.encrypt(nonce, text, None))

    def open(self, data: str) -> bytes:
        """The message within.

        Raises:
            BadSeal: it does not open, or was opened before.
        """
        try:
            raw = from_b64url(data)
        except ValueError:
            raise BadSeal("bad_seal") from None
        nonce = raw[:NONCE]
        if len(raw) < NONCE + TAG or (self._seen and nonce in self._seen):
            raise BadSeal("bad_seal")
        plain = _opened(self._aead, nonce, raw[NONCE:], None)
        self._remember(nonce)
        return plain

    def _remember(self, nonce: bytes) -> None:
        if self._seen is None:
            return
        if len(self._seen) >= V1_FRAMES:
            raise BadSeal("session_exhausted")
        self._seen.add(nonce)


class CounterSeal:
    """v2, one direction: the nonce is the frame's number, the header is authenticated."""

    __slots__ = ("_aead",)

    def __init__(self, aead: Aead) -> None:
        self._aead = aead

    def seal(self, number: int, header: bytes, body: bytes | memoryview) -> bytes:
        """Ciphertext and tag of frame ``number``."""
        return self._aead.encrypt(number.to_bytes(NONCE, "big"), body, header)

    def open(self, number: int, header: bytes, body: memoryview) -> bytes:
        """The body of frame ``number``.

        Raises:
            BadSeal: it is not that frame, or was changed.
        """
        return _opened(self._aead, number.to_bytes(NONCE, "big"), body, header)


def _opened(aead: Aead, nonce: bytes, data: bytes | memoryview, associated: bytes | None) -> bytes:
    try:
        return aead.decrypt(nonce, data, associated)
    except Exception as error:  # the library's own class, which is not known here
        raise BadSeal("bad_seal") from error
