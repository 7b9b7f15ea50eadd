"""The errors that foreign JSON may raise: no JSON or another shape, no UTF-8, nested too deep."""

from __future__ import annotations

import msgspec

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
