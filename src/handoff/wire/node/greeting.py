"""The handshake, each side as an object that lives only as long as it lasts.

``hello``, ``hello_ack``, ``auth``, ``auth_ok``: who the node says it is, what the brain
offers, how the node proves it, and that the brain proved itself. Whatever does not fit
raises :class:`~handoff.wire.node.frames.Refused` with the reason to send and close with.
Frames are passed as they went over the wire, because v2 proofs and signatures cover them.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from handoff.wire.node.events import Credential
from handoff.wire.node.features import GO, OWN, PLUGIN, Features, offered, settle
from handoff.wire.node.frames import OLD_LIMIT, BinaryFrames, Refused, SealedFrames, TextFrames
from handoff.wire.node.messages import (
    PROTOCOL_VERSION,
    SHORT,
    Auth,
    AuthOk,
    Hello,
    HelloAck,
)
from handoff.wire.node.options import BrainOptions, NodeOptions
from handoff.wire.node.sealing import (
    Ciphers,
    CounterSeal,
    Handshake,
    Random,
    RandomSeal,
    b64url,
    from_b64url,
    to_sign,
    transcript,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BrainGreeting", "NodeGreeting"]

Frames = TextFrames | BinaryFrames


def _check_hello(hello: Hello) -> None:
    """What the plugin's server demands of a hello, except that further fields may be there."""
    if not hello.node_name.strip():
        raise Refused("bad_hello", "the node's name is blank")
    # They are shown in lists and logs.
    for name in ("node_name", "node_version", "platform", "arch", "instance", "policy"):
        if not getattr(hello, name).isprintable():
            raise Refused("bad_hello", f"'{name}' holds control characters")
    if any(len(name) > SHORT for name in hello.capabilities):
        raise Refused("bad_hello", f"a capability has at most {SHORT} characters")
    major = hello.protocol_version.partition(".")[0]
    if major != "0":
        raise Refused(
            "unsupported_protocol_version",
            f"version {hello.protocol_version[:16]!r}, this brain speaks {PROTOCOL_VERSION}",
        )


def _public_key(value: str, reason: str, what: str) -> bytes:
    try:
        return from_b64url(value, 32)
    except ValueError as error:
        raise Refused(reason, f"{what}: {error}") from error


def _session_frames(
    features: Features,
    handshake: Handshake | None,
    session_id: str,
    auth: bytes,
    ciphers: Ciphers,
    random: Random,
    *,
    node: bool,
) -> Frames:
    """The frames of the open session."""
    if features.sealed == "v1":
        assert handshake is not None
        aead = ciphers.aead(handshake.session_key(session_id))
        return SealedFrames(RandomSeal(aead, random, once=node))
    if not features.frames2:
        return TextFrames(OLD_LIMIT)
    if features.sealed != "v2":
        return BinaryFrames()
    assert handshake is not None
    from_node, from_brain = (CounterSeal(ciphers.aead(key)) for key in handshake.keys(auth))
    return BinaryFrames(from_node, from_brain) if node else BinaryFrames(from_brain, from_node)


class BrainGreeting:
    """The brain's side."""

    def __init__(self, options: BrainOptions, ciphers: Ciphers, random: Random) -> None:
        self._options = options
        self._ciphers = ciphers
        self._random = random
        self._raw: list[bytes] = []
        self._credential: Credential | None = None
        self._handshake: Handshake | None = None
        self.hello = Hello("", "")
        self.features = Features()
        self.session_id = ""

    def take_hello(self, hello: Hello, raw: str) -> None:
        """Check a hello.

        Raises:
            Refused: ``bad_hello``, ``unsupported_protocol_version``.
        """
        _check_hello(hello)
        for value, what in ((hello.ecdh_pub, "ecdh_pub"), (hello.key, "key")):
            if value:
                _public_key(value, "bad_hello", what)
        self.hello = hello
        self._raw = [raw.encode()]

    def identify(
        self,
        credential: Credential | None,
        session_id: str,
        server_time: str,
        write: Callable[[HelloAck], str],
    ) -> str:
        """The hello_ack frame for a node with that credential (None: no such node).

        A node that does not exist is answered as one that does, and refused at ``auth``:
        the handshake tells nobody which names there are.

        Raises:
            Refused: ``e2e_required``.
        """
        hello, options = self.hello, self._options
        self._credential = credential
        self.session_id = session_id
        brain = offered(chunks=options.chunks, seal=options.seal, keys=bool(options.key))
        both = settle(hello, brain)
        self.features = self._settled(both)
        self._check_required()
        private = self._random(32) if self.features.sealed else b""
        salt = self._random(32) if self.features.sealed or self.features.method == "key" else b""
        ack = HelloAck(
            protocol_version=hello.protocol_version,
            session_id=session_id,
            server_time=server_time,
            capabilities=both,
            ecdh_pub=b64url(self._ciphers.x25519_public(private)) if private else "",
            salt=b64url(salt) if salt else "",
            key=self._public() if self.features.method == "key" else "",
        )
        frame = write(ack)
        self._raw.append(frame.encode())
        if private:
            self._agree(private, salt)
        return frame

    def _settled(self, both: tuple[str, ...]) -> Features:
        hello, credential = self.hello, self._credential
        ours = "calls2" in both
        keys = "keys" in both
        sealed = ""
        if "e2e2" in both:
            sealed = "v2"
        elif hello.ecdh_pub and hello.e2e and not keys and self._options.seal:
            sealed = "v1"
        # Sealing with a token needs the token itself. For a name that does not exist a
        # random one does, so that its owner's token is not asked for in clear.
        if sealed and not keys and credential is not None and not credential.token:
            sealed = ""
        return Features(
            profile=OWN if ours else GO,
            calls2=ours,
            frames2="frames2" in both and (sealed != "v1"),
            sealed=sealed,
            chunks="exec_chunk" in both,
            method="key" if keys else ("proof" if sealed else "token"),
        )

    def _check_required(self) -> None:
        for wanted in (self._options.require, self._credential.require if self._credential else ""):
            if not self.features.meets(wanted):
                raise Refused("e2e_required", "this brain takes the node in sealed sessions only")

    def _public(self) -> str:
        return b64url(self._ciphers.ed25519_public(self._options.key))

    def _agree(self, private: bytes, salt: bytes) -> None:
        token = b""
        if self.features.method == "proof":
            known = self._credential.token if self._credential else ""
            token = known.encode() or self._random(32)
        raw = self._raw if self.features.sealed == "v2" else [b"", b""]
        public = from_b64url(self.hello.ecdh_pub, 32)
        try:
            self._handshake = Handshake(self._ciphers, private, public, salt, token, *raw)
        except ValueError as error:
            raise Refused("bad_hello", f"ecdh_pub: {error}") from error

    def take_auth(self, auth: Auth, raw: str) -> None:
        """Check an auth.

        Raises:
            Refused: ``unknown_node``, ``bad_auth``, ``invalid_token``, ``revoked``.
        """
        if auth.node_name != self.hello.node_name:
            raise Refused("unknown_node")
        method = self.features.method
        given = {"token": auth.token, "proof": auth.proof, "key": auth.signature}
        if not given[method]:
            raise Refused("bad_auth", f"this session needs the node's {_WORDS[method]}")
        if any(value for name, value in given.items() if name != method):
            raise Refused("bad_auth", f"this session takes nothing but the {_WORDS[method]}")
        if not self._shown(given[method]) or self._credential is None:
            raise Refused("invalid_token")
        if self._credential.revoked:
            raise Refused("revoked")
        self._raw.append(raw.encode())

    def _shown(self, given: str) -> bool:
        credential = self._credential
        if self.features.method == "proof":
            assert self._handshake is not None
            return hmac.compare_digest(
                b64url(self._handshake.client_proof()).encode(), given.encode()
            )
        if self.features.method == "key":
            said = to_sign(b"node", transcript(*self._raw))
            known = credential.key if credential else b""
            try:
                signature = from_b64url(given, 64)
                public = from_b64url(self.hello.key, 32)
            except ValueError:
                return False
            fits = hmac.compare_digest(known, public)
            return self._ciphers.verify(public, signature, said) and fits
        digest = hashlib.sha256(given.encode()).hexdigest()
        known_digest = credential.token_sha256 if credential else ""
        if credential and credential.token:
            known_digest = hashlib.sha256(credential.token.encode()).hexdigest()
        return hmac.compare_digest(known_digest.encode(), digest.encode())

    def admit(self) -> AuthOk:
        """The auth_ok message."""
        auth = self._raw[2]
        proof = signature = ""
        if self._handshake is not None and self.features.method == "proof":
            proof = b64url(self._handshake.server_proof(auth))
        if self.features.method == "key":
            said = to_sign(b"brain", transcript(*self._raw))
            signature = b64url(self._ciphers.sign(self._options.key, said))
        return AuthOk(self.session_id, proof, signature)

    def frames(self) -> Frames:
        """The frames of the session that auth_ok opens."""
        return _session_frames(
            self.features,
            self._handshake,
            self.session_id,
            self._raw[2],
            self._ciphers,
            self._random,
            node=False,
        )


_WORDS = {"token": "token", "proof": "proof", "key": "signature"}


class NodeGreeting:
    """The node's side."""

    def __init__(self, options: NodeOptions, ciphers: Ciphers, random: Random) -> None:
        self._options = options
        self._ciphers = ciphers
        self._random = random
        self._raw: list[bytes] = []
        self._private = b""
        self._handshake: Handshake | None = None
        self._brain_key = b""
        self.features = Features(profile=PLUGIN)
        self.session_id = ""
        self.hello = Hello("", "")

    def make_hello(self, ts: str, write: Callable[[Hello], str]) -> str:
        """The hello frame."""
        options = self._options
        plain = Hello(
            protocol_version=PROTOCOL_VERSION,
            node_name=options.name,
            node_version=options.version,
            platform=options.platform,
            arch=options.arch,
            capabilities=("exec", "read", "write"),
            ts=ts,
        )
        self.hello = plain if options.plugin else self._extended(plain)
        frame = write(self.hello)
        self._raw = [frame.encode()]
        return frame

    def _extended(self, plain: Hello) -> Hello:
        options = self._options
        if options.seal or options.key:
            self._private = self._random(32)
        public = b64url(self._ciphers.x25519_public(self._private)) if self._private else ""
        key = b64url(self._ciphers.ed25519_public(options.key)) if options.key else ""
        return Hello(
            protocol_version=plain.protocol_version,
            node_name=plain.node_name,
            node_version=plain.node_version,
            platform=plain.platform,
            arch=plain.arch,
            capabilities=offered(seal=options.seal, keys=bool(options.key)),
            ts=plain.ts,
            e2e=options.seal,
            ecdh_pub=public,
            key=key,
            instance=options.instance,
            policy=options.policy,
            took_over=options.took_over,
        )

    def take_ack(self, ack: HelloAck, raw: str, ts: str, write: Callable[[Auth], str]) -> str:
        """The auth frame that answers a hello_ack.

        Raises:
            Refused: the brain offers less than is required, or is not the pinned one.
        """
        options = self._options
        self._raw.append(raw.encode())
        self.session_id = ack.session_id
        self.features = self._settled(ack)
        if (options.require == "e2e" and not self.features.sealed) or (
            options.require == "e2e2" and self.features.sealed != "v2"
        ):
            raise Refused("e2e_required", "the brain offers no sealed session of that kind")
        # A proof over no token could be made by anybody.
        if (self.features.method == "key") is not bool(options.key) or not (
            options.key or options.token
        ):
            raise Refused("server_unproven", "the brain does not take this node's key")
        if self.features.sealed:
            self._agree(ack)
        if self.features.method == "key":
            auth = self._signed(ack, ts)
        elif self.features.method == "proof":
            assert self._handshake is not None
            auth = Auth(options.name, proof=b64url(self._handshake.client_proof()), ts=ts)
        else:
            auth = Auth(options.name, token=options.token, ts=ts)
        frame = write(auth)
        self._raw.append(frame.encode())
        return frame

    def _settled(self, ack: HelloAck) -> Features:
        # Nothing counts that the hello did not offer.
        both = set(settle(self.hello, ack.capabilities)) & set(ack.capabilities)
        ours = "calls2" in both
        keys = bool(self._options.key) and "keys" in both
        sealed = ""
        if ack.ecdh_pub and self.hello.e2e:
            sealed = "v2" if "e2e2" in both else ("" if keys else "v1")
        return Features(
            profile=OWN if ours else PLUGIN,
            calls2=ours,
            frames2="frames2" in both and sealed != "v1",
            sealed=sealed,
            method="key" if keys else ("proof" if sealed else "token"),
        )

    def _agree(self, ack: HelloAck) -> None:
        public = _public_key(ack.ecdh_pub, "server_unproven", "ecdh_pub")
        salt = _public_key(ack.salt, "server_unproven", "salt")
        token = b"" if self.features.method == "key" else self._options.token.encode()
        raw = self._raw if self.features.sealed == "v2" else [b"", b""]
        try:
            self._handshake = Handshake(self._ciphers, self._private, public, salt, token, *raw)
        except ValueError as error:
            raise Refused("server_unproven", f"ecdh_pub: {error}") from error

    def _signed(self, ack: HelloAck, ts: str) -> Auth:
        self._brain_key = _public_key(ack.key, "server_unproven", "key")
        pinned = self._options.brain_key
        if not pinned or not hmac.compare_digest(pinned, self._brain_key):
            raise Refused("wrong_brain")
        said = to_sign(b"node", transcript(*self._raw))
        signature = b64url(self._ciphers.sign(self._options.key, said))
        return Auth(self._options.name, signature=signature, ts=ts)

    def take_ok(self, ok: AuthOk) -> None:
        """Check the brain's proof.

        Raises:
            Refused: ``server_unproven``: it is missing or wrong.
        """
        auth = self._raw[2]
        if self.features.method == "proof":
            assert self._handshake is not None
            right = b64url(self._handshake.server_proof(auth))
            if not hmac.compare_digest(right.encode(), ok.proof.encode()):
                raise Refused("server_unproven")
        if self.features.method == "key":
            said = to_sign(b"brain", transcript(*self._raw))
            try:
                signature = from_b64url(ok.signature, 64)
            except ValueError as error:
                raise Refused("server_unproven", f"signature: {error}") from error
            if not self._ciphers.verify(self._brain_key, signature, said):
                raise Refused("server_unproven")
        if ok.session_id != self.session_id:
            raise Refused("server_unproven", "auth_ok is of another session")

    def frames(self) -> Frames:
        """The frames of the session that auth_ok opened."""
        return _session_frames(
            self.features,
            self._handshake,
            self.session_id,
            self._raw[2],
            self._ciphers,
            self._random,
            node=True,
        )
