"""Names that were given, of those that there are."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from srtm.errors import BadInput


def chosen(
    kind: str, names: Sequence[str], known: Collection[str], *, usual: Collection[str] | None = None, why: str = ""
) -> list[str]:
    """Each once, in the order in which they were named; where none is, ``usual``, or all. ``why``: there are no others.
    Raises BadInput."""
    for name in names:
        if name not in known:
            raise BadInput(kind, name, f"must be one of {', '.join(known)}{f': {why}' if why else ''}")
    return list(dict.fromkeys(names or (known if usual is None else usual)))
