"""The curves and ciphers that the node protocol asks for, from ``cryptography``."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["CIPHERS", "CryptographyCiphers"]


class CryptographyCiphers:
    """Implements :class:`handoff.wire.node.sealing.Ciphers`. Keys are 32 raw bytes."""

    def x25519_public(self, private: bytes) -> bytes:
        """The public key of a private one."""
        return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()

    def x25519(self, private: bytes, public: bytes) -> bytes:
        """The shared secret.

        Raises:
            ValueError: ``public`` is no key, or of low order (RFC 7748 section 6.1).
        """
        mine = X25519PrivateKey.from_private_bytes(private)
        return mine.exchange(X25519PublicKey.from_public_bytes(public))

    def aead(self, key: bytes) -> AESGCM:
        """AES-256-GCM under that key."""
        return AESGCM(key)

    def ed25519_public(self, private: bytes) -> bytes:
        """The public key of a private one."""
        return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()

    def sign(self, private: bytes, data: bytes) -> bytes:
        """An ed25519 signature, 64 bytes."""
        return Ed25519PrivateKey.from_private_bytes(private).sign(data)

    def verify(self, public: bytes, signature: bytes, data: bytes) -> bool:
        """Whether the signature is that key's over the data."""
        try:
            Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
        except (InvalidSignature, ValueError):
            return False
        return True


CIPHERS = CryptographyCiphers()
