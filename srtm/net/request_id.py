"""The id by which a request is found in logs: that of the header ``X-Request-Id``, else a new one."""

from __future__ import annotations

import re
import secrets

HEADER = "X-Request-Id"
_USABLE = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}", re.ASCII)


def request_id(given: str | None) -> str:
    """``given``, if it is short and plain enough for logs and headers; else 16 random hexadecimal digits."""
    return given if given is not None and _USABLE.fullmatch(given) else secrets.token_hex(8)
