"""What decoding JSON may raise that somebody else wrote: no JSON, or not of the shape; not UTF-8; nested too deep."""

from __future__ import annotations

import msgspec

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
