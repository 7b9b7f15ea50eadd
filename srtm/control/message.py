"""The base of all messages, and rules for values that several of them carry."""

from __future__ import annotations

import re

import msgspec

from srtm.errors import BadInput

_BROKER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Control(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False, forbid_unknown_fields=False, gc=False):
    """Base of all messages.

    Unknown fields are ignored, so that versions may differ during an upgrade. Messages form no cycles; without ``gc``
    the collector does not scan thousands of reports a second.
    """


def check_broker_name(field: str, name: str) -> None:
    """Check a broker's name, which stands in paths and labels. Raises BadInput."""
    if _BROKER_NAME.fullmatch(name) is None:
        rule = "must be 1 to 64 of the characters A-Z a-z 0-9 . _ -, beginning with a letter or digit"
        raise BadInput(field, name, rule)
