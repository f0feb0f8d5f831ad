"""Pairing codes: how a node and a brain get to know each other's key.

The brain shows a code; a person types it into the node. It carries the brain's address, the
brain's public key and a secret that is good once, for minutes, and for a few attempts. The
node makes its key pair and proves that it knows the secret; the brain stores the node's
public key and proves the same. From then on keys decide, and the code is worth nothing.

Text form: ``hn1`` and base32 in lower case, of: a version byte, the code's id (5 bytes), the
secret (12), the brain's public key (32), lengths and texts of address and name, and four
bytes of SHA-256 over all before, so that a mistyped code is told from a refused one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import urllib.parse
from dataclasses import dataclass, field

from handoff.errors import BadRequest, PairingRefused
from handoff.wire.node.messages import Pair, PairOk
from handoff.wire.node.sealing import b64url, from_b64url

__all__ = [
    "ATTEMPTS",
    "TTL_S",
    "PairingCode",
    "brain_proof",
    "check_answer",
    "check_name",
    "check_time",
    "new_code",
    "node_proof",
    "pair_message",
    "parse_code",
    "stored_secret",
]

#: seconds that a code is good for, and wrong proofs that it survives
TTL_S = 600
ATTEMPTS = 5
#: seconds that a code is good for at most
LONGEST_S = 86400

_PREFIX = "hn1"
_VERSION = 1
_ID, _SECRET, _KEY, _SUM = 5, 12, 32, 4
#: characters of a code; an address has at most 255 bytes, a name 64
_LIMIT = 1024


@dataclass(frozen=True, slots=True)
class PairingCode:
    """``id``: the public part. ``address``: ``wss://host:port``. ``brain_key``: the key to
    pin. ``name``: of the node, or empty for the node to choose."""

    id: str
    secret: bytes = field(repr=False)
    address: str
    brain_key: bytes
    name: str = ""

    def text(self) -> str:
        """The code as it is shown and typed."""
        address, name = self.address.encode(), self.name.encode()
        body = b"".join(
            (
                *(bytes((_VERSION,)), bytes.fromhex(self.id), self.secret, self.brain_key),
                *(bytes((len(address),)), address, bytes((len(name),)), name),
            )
        )
        whole = body + hashlib.sha256(body).digest()[:_SUM]
        return _PREFIX + base64.b32encode(whole).decode("ascii").rstrip("=").lower()


def check_name(name: str) -> str:
    r"""A node's name, trimmed: 1 to 64 printable ASCII characters without ``/``, ``\`` and
    ``..`` (the rule of the plugin's store).

    Raises:
        BadRequest: it is not one.
    """
    trimmed = name.strip()
    if not trimmed:
        raise BadRequest("the node's name is empty", field="name")
    if len(trimmed) > 64:
        raise BadRequest("a node's name has at most 64 characters", field="name")
    if not all(" " <= c <= "~" for c in trimmed):
        raise BadRequest("a node's name has printable ASCII characters only", field="name")
    if "/" in trimmed or "\\" in trimmed or ".." in trimmed:
        raise BadRequest("a node's name can't hold '/', '\\' or '..'", field="name")
    return trimmed


def check_address(address: str) -> str:
    """The URL of a brain: ``ws`` or ``wss``, a host, maybe a port and a path.

    Raises:
        BadRequest: it is not one.
    """
    try:
        parts = urllib.parse.urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise BadRequest(f"'{address[:80]}' is no address: {error}", field="address") from None
    odd = any(sign.isspace() or not sign.isprintable() for sign in address)
    if parts.scheme not in {"ws", "wss"} or not host or parts.username is not None or odd:
        raise BadRequest(
            f"'{address[:80]}' is no address",
            field="address",
            remedy="write wss://host:port",
        )
    if len(address.encode()) > 255:
        raise BadRequest("an address has at most 255 bytes", field="address")
    return address


def check_time(ttl_s: int) -> None:
    """Raise BadRequest if a code can't be good for so many seconds."""
    if not 1 <= ttl_s <= LONGEST_S:
        raise BadRequest(f"a code is good for 1 to {LONGEST_S} seconds", field="ttl_s")


def new_code(address: str, brain_key: bytes, name: str = "") -> PairingCode:
    """A fresh code; store its :func:`stored_secret` before showing it.

    Raises:
        BadRequest: the address or the name is none.
    """
    return PairingCode(
        id=secrets.token_hex(_ID),
        secret=secrets.token_bytes(_SECRET),
        address=check_address(address),
        brain_key=brain_key,
        name=check_name(name) if name else "",
    )


def parse_code(text: str) -> PairingCode:
    """The code that a person typed; spaces, line ends and capitals do not matter.

    Raises:
        BadRequest: it is not a whole code; the sentence says what may have happened.
    """
    cleaned = "".join(text.split()).lower()
    if not cleaned.startswith(_PREFIX) or len(cleaned) > _LIMIT:
        raise BadRequest(
            f"that is no pairing code: one begins with '{_PREFIX}'",
            remedy="ask for one on the brain: handoff nodes pair NAME",
            field="code",
        )
    raw = cleaned[len(_PREFIX) :].upper()
    try:
        whole = base64.b32decode(raw + "=" * (-len(raw) % 8))
    except ValueError:  # binascii.Error is one
        whole = b""
    body, end = whole[:-_SUM], whole[-_SUM:]
    if len(whole) < _SUM or not hmac.compare_digest(hashlib.sha256(body).digest()[:_SUM], end):
        raise BadRequest(
            "the pairing code is not complete, or was mistyped",
            field="code",
            remedy="copy the whole code again",
        )
    return _parse(body)


def _parse(body: bytes) -> PairingCode:
    if body[:1] != bytes((_VERSION,)):
        raise BadRequest("the pairing code is of another version", field="code")
    try:
        at = 1
        fields = []
        for size in (_ID, _SECRET, _KEY):
            fields.append(body[at : at + size])
            at += size
        texts = []
        for _ in range(2):
            size = body[at]
            texts.append(body[at + 1 : at + 1 + size].decode())
            at += 1 + size
        if at != len(body):
            raise ValueError("length")
    except (IndexError, ValueError):
        raise BadRequest("the pairing code is damaged", field="code") from None
    name = check_name(texts[1]) if texts[1] else ""
    return PairingCode(fields[0].hex(), fields[1], check_address(texts[0]), fields[2], name)


def stored_secret(secret: bytes) -> bytes:
    """What both sides derive proofs from, and what the brain keeps of a secret."""
    return hashlib.sha256(b"handoff-pair-secret\0" + secret).digest()


def _proof(role: bytes, stored: bytes, *said: bytes) -> bytes:
    body = b"".join(len(part).to_bytes(4, "big") + part for part in (role, *said))
    return hmac.digest(stored, body, "sha256")


def node_proof(stored: bytes, code: str, node_key: bytes, name: str, brain_key: bytes) -> bytes:
    """That whoever holds ``node_key`` knows the code's secret."""
    return _proof(b"node", stored, code.encode(), node_key, name.encode(), brain_key)


def brain_proof(stored: bytes, code: str, node_key: bytes, name: str, brain_key: bytes) -> bytes:
    """That whoever holds ``brain_key`` knows it too."""
    return _proof(b"brain", stored, code.encode(), node_key, name.encode(), brain_key)


def pair_message(code: PairingCode, node_key: bytes, name: str = "") -> Pair:
    """The message that redeems a code. ``name``: needed where the code has none.

    Raises:
        BadRequest: there is no name, or another than the code's.
    """
    wanted = check_name(name or code.name)
    if code.name and wanted != code.name:
        raise BadRequest(
            f"this code is for the node '{code.name}'",
            remedy="leave --name out, or ask for a code for that name",
            field="name",
        )
    proof = node_proof(stored_secret(code.secret), code.id, node_key, wanted, code.brain_key)
    return Pair(code=code.id, key=b64url(node_key), proof=b64url(proof), node_name=wanted)


def check_answer(code: PairingCode, node_key: bytes, answer: PairOk) -> str:
    """The name under which the node is known from now on.

    Raises:
        PairingRefused: the answer does not come from the brain that showed the code.
    """
    try:
        key, proof = from_b64url(answer.key, 32), from_b64url(answer.proof, 32)
    except ValueError as error:
        raise PairingRefused(f"the brain's answer can't be read: {error}") from error
    stored = stored_secret(code.secret)
    right = brain_proof(stored, code.id, node_key, answer.node_name, code.brain_key)
    if not hmac.compare_digest(key, code.brain_key) or not hmac.compare_digest(proof, right):
        raise PairingRefused("the answer does not come from the brain that showed the code")
    return answer.node_name
