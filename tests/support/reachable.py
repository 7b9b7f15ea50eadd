"""Where a name is kept in memory: what a long-lived process must forget."""

from __future__ import annotations

import gc
import types

from sqlalchemy import Engine

# They are of the program, not of what it keeps; an engine keeps the latest statements, a bounded number.
_SKIPPED = (type, types.ModuleType, types.FunctionType, types.FrameType, types.CodeType, Engine)


def paths_to(root: object, name: str) -> list[str]:
    """The ways from ``root`` to strings that are ``name``, as names of types."""
    found, seen, left = [], {id(root)}, [(root, type(root).__name__)]
    while left:
        here, path = left.pop()
        keys = here.keys() if isinstance(here, dict) else ()  # a dictionary does not show strings that are keys
        for one in [*keys, *gc.get_referents(here)]:
            if isinstance(one, str):
                found += [path] if one == name else []
            elif id(one) not in seen and not isinstance(one, _SKIPPED):
                seen.add(id(one))
                left.append((one, f"{path}.{type(one).__name__}"))
    return found
