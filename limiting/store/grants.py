"""Grants of checks that the store decided. Any node reads them: the store keeps their key. Pure."""

from __future__ import annotations

import hmac
import struct
from typing import NamedTuple

from srtm.limiting.limiter import GRANT_BYTES

_FORM = struct.Struct(">8s16s6sII")  # 38 bytes
_MAC_BYTES = GRANT_BYTES - _FORM.size


class Grant(NamedTuple):
    """What was taken, for whom, and when (s, by the store's clock, rounded up)."""

    name: bytes  # 8
    subject: bytes  # 16
    contract: bytes  # 6: the tag of its rules
    cost: int
    at: int


def sealed(grant: Grant, key: bytes) -> bytes:
    """Return a grant as bytes that nobody can make without the key."""
    packed = _FORM.pack(*grant)
    return packed + _mac(packed, key)


def read_grant(content: bytes, key: bytes) -> Grant | None:
    """Read a grant. None: this key did not seal it."""
    packed, mac = content[: _FORM.size], content[_FORM.size :]
    if not hmac.compare_digest(mac, _mac(packed, key)):
        return None
    return Grant(*_FORM.unpack(packed))


def _mac(packed: bytes, key: bytes) -> bytes:
    return hmac.digest(key, packed, "sha256")[:_MAC_BYTES]
