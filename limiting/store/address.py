"""Addresses of stores. Pure."""

from __future__ import annotations

from urllib.parse import urlsplit

from srtm.errors import BadInput

# The protocol that each means; a final s is for TLS.
SCHEMES = {
    "redis": "redis",
    "rediss": "rediss",
    "valkey": "redis",
    "valkeys": "rediss",
    "redis+cluster": "redis",
    "rediss+cluster": "rediss",
    "valkey+cluster": "redis",
    "valkeys+cluster": "rediss",
}


def checked_store(url: str) -> str:
    """Return the address of a store if it can be one. Raises BadInput, which does not show it: it may have a secret."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or not parts.hostname:
        raise BadInput("store", "(not shown)", f"must be SCHEME://HOST:PORT, the scheme one of {', '.join(SCHEMES)}")
    return url
