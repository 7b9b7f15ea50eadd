"""The key that all nodes of one limit have, and what is derived from it."""

from __future__ import annotations

import hmac
from hashlib import blake2b

from limiting.replication.refill import Subject
from srtm.errors import BadInput

LEAST_BYTES, MOST_BYTES = 16, 1_024


class ClusterKey:
    """``text``: the content of the key's file, without white space around it. Raises BadInput for a weak one."""

    def __init__(self, text: bytes) -> None:
        text = text.strip()
        if not LEAST_BYTES <= len(text) <= MOST_BYTES:
            raise BadInput(
                "cluster_key_file",
                f"{len(text)} bytes",
                f"must hold {LEAST_BYTES} to {MOST_BYTES} bytes: write 32 random ones as text, once for all nodes",
            )
        self.links = hmac.digest(text, b"links", "sha256")
        self.grants = hmac.digest(text, b"grants", "sha256")
        self._subjects = hmac.digest(text, b"subjects", "sha256")

    def subject(self, namespace: str, name: str) -> Subject:
        """The keyed hash of a subject: the same on all nodes, and nobody without the key can make two collide."""
        return self._hash(16, b"subject", namespace, name)

    def group(self, *words: str) -> bytes:
        """The tag of messages that are about one contract, 8 bytes."""
        return self._hash(8, b"group", *words)

    def _hash(self, size: int, purpose: bytes, *words: str) -> bytes:
        digest = blake2b(digest_size=size, key=self._subjects, person=purpose)
        for word in words:
            data = word.encode()
            digest.update(len(data).to_bytes(4, "big") + data)
        return digest.digest()


def number_of(name: str) -> int:
    """The number that a node has in the state machines: a hash of its name, so that all nodes agree about it."""
    return int.from_bytes(blake2b(name.encode(), digest_size=4).digest(), "big")
