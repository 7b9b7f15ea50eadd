"""Grants as bytes that nobody makes without the cluster's key. Every node reads those of all others."""

from __future__ import annotations

import hmac
import struct

from limiting.replication.node_grants import Grant
from limiting.wire.cluster_key import ClusterKey

_FORM = struct.Struct(">I8s16sIQ")
_MAC_BYTES = 8  # as in ``limiting/core/src/grant.rs``: who guesses asks a service for each guess
GRANT_BYTES = _FORM.size + _MAC_BYTES


def sealed(grant: Grant, key: ClusterKey) -> bytes:
    """Return a grant as bytes."""
    packed = _FORM.pack(*grant)
    return packed + _mac(packed, key)


def read_grant(content: bytes, key: ClusterKey) -> Grant | None:
    """Read a grant. None: this key did not seal it."""
    packed, mac = content[: _FORM.size], content[_FORM.size :]
    if not hmac.compare_digest(mac, _mac(packed, key)):
        return None
    return Grant(*_FORM.unpack(packed))


def _mac(packed: bytes, key: ClusterKey) -> bytes:
    return hmac.digest(key.grants, packed, "sha256")[:_MAC_BYTES]
