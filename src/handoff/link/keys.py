"""The ed25519 key of a machine, in a file that only its user can read.

A brain's key signs handshakes and is the key of its TLS certificate, so that one pin names
both. A node's key is made when it pairs and never leaves it.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
from dataclasses import dataclass, field

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from handoff.errors import StorageError
from handoff.link.ciphers import CIPHERS
from handoff.link.files import read_private, write_new

__all__ = ["MachineKey", "fingerprint", "load_key", "load_or_make_key", "new_key"]


@dataclass(frozen=True, slots=True)
class MachineKey:
    """``private`` and ``public``: 32 raw bytes each."""

    private: bytes = field(repr=False)
    public: bytes

    @property
    def fingerprint(self) -> str:
        """See :func:`fingerprint`."""
        return fingerprint(self.public)

    def pem(self) -> bytes:
        """The private key as PKCS 8 in PEM."""
        key = Ed25519PrivateKey.from_private_bytes(self.private)
        return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def fingerprint(public: bytes) -> str:
    """A public key for people to compare: ``SHA256:`` and 43 characters, as OpenSSH has it."""
    digest = base64.b64encode(hashlib.sha256(public).digest()).rstrip(b"=")
    return f"SHA256:{digest.decode('ascii')}"


def new_key() -> MachineKey:
    """A fresh key."""
    private = secrets.token_bytes(32)
    return MachineKey(private, CIPHERS.ed25519_public(private))


def load_key(path: str) -> MachineKey:
    """The key in a file.

    Raises:
        FileNotFoundError: there is no file.
        StorageError: it is no ed25519 key, is open to others, or can't be read.
    """
    try:
        key = load_pem_private_key(read_private(path), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise StorageError(f"{path} holds no private key that can be read", path=path) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise StorageError(f"{path} holds a key, but no ed25519 key", path=path)
    private = key.private_bytes_raw()
    return MachineKey(private, CIPHERS.ed25519_public(private))


def load_or_make_key(path: str) -> MachineKey:
    """The key in a file, which is made if there is none. Never replaces one that is there,
    and two processes at once get the same.

    Raises:
        StorageError: there is a file, but no key in it that can be used.
    """
    try:
        return load_key(path)
    except FileNotFoundError:
        made = new_key()
        if write_new(os.path.abspath(path), made.pem()):
            return made
        return load_key(path)
