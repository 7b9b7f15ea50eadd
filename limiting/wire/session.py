"""One connection between two nodes: each proves that it has the cluster's key, then every message has a MAC.

    caller:  MAGIC, name, nonce                     opening
    called:  MAGIC, name, nonce, proof              proof = HMAC(key, "called", both openings)
    caller:  proof                                  proof = HMAC(key, "caller", both openings)
    both:    size (4 bytes), message, MAC (16 bytes)

A MAC is over the number of the message in its direction, and under a key of the session and the direction. So messages
that are forged, changed, repeated, left out, put in another order, sent back or taken from another session end the
session. Messages are not encrypted: that is what TLS is for. HMAC: RFC 2104, with SHA-256.
"""

from __future__ import annotations

import hmac
from enum import Enum

from srtm.errors import PeerError

MAGIC = b"SRTM limit 1\n"
NONCE_BYTES = 32
PROOF_BYTES = 32
MAC_BYTES = 16
LONGEST_NAME = 64  # bytes
LARGEST_MESSAGE = 32 << 20  # a snapshot of a million subjects
_OPENING_BYTES = len(MAGIC) + 1 + NONCE_BYTES


class Side(Enum):
    """Who connected: the caller."""

    CALLER = "caller"
    CALLED = "called"


class State(Enum):
    """What comes next from the other side."""

    OPENING = "opening"
    PROOF = "proof"
    MESSAGES = "messages"
    OVER = "over"


class Session:
    """``nonce``: NONCE_BYTES that were never used before. ``expected``: the name that the peer must have; None: any.

    Send ``begin()`` first, then what ``feed`` and ``seal`` return.
    """

    def __init__(self, side: Side, key: bytes, name: str, nonce: bytes, expected: str | None = None) -> None:
        self.state = State.OPENING
        self.peer: str | None = None
        self._side = side
        self._key = key
        self._expected = expected
        self._own_name = name
        self._own = MAGIC + bytes([len(name.encode())]) + name.encode() + nonce
        self._openings = b""
        self._unread = bytearray()
        self._sent = self._read = 0
        self._sending = self._reading = b""

    @property
    def is_open(self) -> bool:
        """The peer has proved itself."""
        return self.state is State.MESSAGES

    def begin(self) -> bytes:
        """What to send before anything came: a caller's opening."""
        return self._own if self._side is Side.CALLER else b""

    def feed(self, data: bytes) -> tuple[bytes, list[bytes]]:
        """Take in bytes. Return what to send back, and the messages that are complete.

        Raises PeerError, after which the session is over.
        """
        if self.state is State.OVER:
            raise PeerError("the session is over")
        self._unread += data
        answer, messages = b"", []
        try:
            while True:
                before = self.state, len(self._unread)
                if self.state is State.OPENING:
                    answer += self._read_opening()
                elif self.state is State.PROOF:
                    answer += self._read_proof()
                else:
                    messages += self._read_message()
                if before == (self.state, len(self._unread)):
                    return answer, messages
        except PeerError:
            self.state = State.OVER
            raise

    def seal(self, message: bytes) -> bytes:
        """Return a message as it is sent. Raises PeerError before the peer has proved itself, or if it is too large."""
        if self.state is not State.MESSAGES:
            raise PeerError("the session is not open")
        if len(message) > LARGEST_MESSAGE:
            raise PeerError(f"a message of {len(message)} bytes is over the {LARGEST_MESSAGE} that one may have")
        mac = _mac(self._sending, self._sent, message)
        self._sent += 1
        return len(message).to_bytes(4, "big") + message + mac

    def _taken(self, size: int) -> bytes:
        taken = bytes(self._unread[:size])
        del self._unread[:size]
        return taken

    def _read_opening(self) -> bytes:
        if not MAGIC.startswith(bytes(self._unread[: len(MAGIC)])):
            raise PeerError("it is no node of a limit of this version")
        if len(self._unread) <= len(MAGIC):
            return b""
        size = self._unread[len(MAGIC)]
        if not 1 <= size <= LONGEST_NAME:
            raise PeerError(f"its name has {size} bytes: it must be 1 to {LONGEST_NAME}")
        if len(self._unread) < _OPENING_BYTES + size:
            return b""
        theirs = self._taken(_OPENING_BYTES + size)
        self.peer = self._named(theirs[len(MAGIC) + 1 : len(MAGIC) + 1 + size])
        called = self._side is Side.CALLED
        self._openings = theirs + self._own if called else self._own + theirs
        self.state = State.PROOF
        return self._own + self._proof(Side.CALLED) if called else b""

    def _named(self, name: bytes) -> str:
        try:
            peer = name.decode()
        except UnicodeDecodeError:
            raise PeerError("its name is no text") from None
        if peer == self._own_name:
            raise PeerError(f"it has this node's name, {peer}: each node needs its own")
        if self._expected is not None and peer != self._expected:
            raise PeerError(f"it is {peer}, not {self._expected}: look at the addresses in peers")
        return peer

    def _read_proof(self) -> bytes:
        if len(self._unread) < PROOF_BYTES:
            return b""
        other = Side.CALLER if self._side is Side.CALLED else Side.CALLED
        if not hmac.compare_digest(self._taken(PROOF_BYTES), self._proof(other)):
            raise PeerError("it does not have this cluster's key")
        self._sending, self._reading = self._derived(self._side), self._derived(other)
        self.state = State.MESSAGES
        return b"" if self._side is Side.CALLED else self._proof(Side.CALLER)

    def _proof(self, side: Side) -> bytes:
        return hmac.digest(self._key, side.value.encode() + b"\n" + self._openings, "sha256")

    def _derived(self, side: Side) -> bytes:
        return hmac.digest(self._key, b"messages of the " + side.value.encode() + b"\n" + self._openings, "sha256")

    def _read_message(self) -> list[bytes]:
        if len(self._unread) < 4:
            return []
        size = int.from_bytes(self._unread[:4], "big")
        if size > LARGEST_MESSAGE:
            raise PeerError(f"a message of {size} bytes is over the {LARGEST_MESSAGE} that one may have")
        if len(self._unread) < 4 + size + MAC_BYTES:
            return []
        frame = self._taken(4 + size + MAC_BYTES)
        message, mac = frame[4:-MAC_BYTES], frame[-MAC_BYTES:]
        if not hmac.compare_digest(mac, _mac(self._reading, self._read, message)):
            raise PeerError(f"message {self._read + 1} was forged or changed on its way")
        self._read += 1
        return [message]


def _mac(key: bytes, number: int, message: bytes) -> bytes:
    return hmac.digest(key, number.to_bytes(8, "big") + message, "sha256")[:MAC_BYTES]
