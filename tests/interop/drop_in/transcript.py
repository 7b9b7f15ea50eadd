"""What a broker answered in a session, in lines that must be the same whoever answered. Pure.

Ids become ``ID1``, ``ID2``... in order of appearance; instants become ``now`` where they are close to it; ports
``PORT``.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

RESPONSE, ERROR, MESSAGE = range(3)
_KINDS = ("response", "error")
_HEADER = 4 + 8 + 2 + 16  # bytes of a message frame before its body: type, timestamp, attempts, id
_CLOSE_S = 3600
_ANY = re.compile(r"(^|\.)memory\.|remote_address$|percentiles\.\d+\.value$")
_INSTANT = re.compile(r"(^|\.)(start_time|connect_ts)$")
_PORT = re.compile(r"(^|\.)(tcp_port|http_port|https_port)$")
_SHOWN = 120  # characters of a body


@dataclass(frozen=True)
class Frame:
    """``ident``, ``attempts`` and ``instant_ns`` of a message."""

    kind: int
    body: bytes
    ident: bytes = b""
    attempts: int = 0
    instant_ns: int = 0


def parse_frame(data: bytes) -> Frame:
    """``data``: what follows the size."""
    kind = int.from_bytes(data[:4], "big")
    if kind != MESSAGE:
        return Frame(kind, data[4:])
    instant_ns, attempts = int.from_bytes(data[4:12], "big"), int.from_bytes(data[12:14], "big")
    return Frame(kind, data[_HEADER:], data[14:_HEADER], attempts, instant_ns)


@dataclass
class Transcript:
    """Lines by label, in order within a label: what different connections get may come in any order. ``exchanges``:
    how many connections and requests there were."""

    lines: dict[str, list[str]] = field(default_factory=dict)
    exchanges: int = 0
    broke_off: str = ""  # why the session could not go on
    now_s: Callable[[], float] = time.time
    _names: dict[bytes, str] = field(default_factory=dict)

    def note(self, label: str, line: str) -> None:
        self.lines.setdefault(label, []).append(line)

    def note_frame(self, label: str, frame: Frame) -> None:
        if frame.kind == MESSAGE:
            name = self._names.setdefault(frame.ident, f"ID{len(self._names) + 1}")
            at = "" if self._is_now(frame.instant_ns / 1e9) else f" at {frame.instant_ns}"
            self.note(label, f"message {name} attempts={frame.attempts}{at} {_brief(frame.body)}")
        elif frame.kind == RESPONSE and frame.body.startswith(b"{"):
            self.note(label, "response JSON")
            self.note_json(label, frame.body)
        else:
            kind = _KINDS[frame.kind] if frame.kind < len(_KINDS) else f"type {frame.kind}"
            self.note(label, f"{kind} {self._without_ids(frame.body)}")

    def note_json(self, label: str, text: bytes) -> None:
        """One label a field: each is compared by itself."""
        self._walk(label, "", json.loads(text))

    def forget(self, label: str) -> None:
        """Everything under it: a step on the way to what is compared."""
        for known in [known for known in self.lines if known == label or known.startswith((f"{label} ", f"{label}."))]:
            del self.lines[known]

    def _walk(self, label: str, path: str, value: object) -> None:
        if isinstance(value, dict) and value:
            for key, part in value.items():
                self._walk(label, f"{path}.{key}" if path else key, part)
        elif isinstance(value, list) and value:
            self.note(f"{label} {path}", f"{len(value)} of them")
            for number, part in enumerate(value):
                self._walk(label, f"{path}.{number}", part)
        else:
            self.note(f"{label} {path}".strip(), self._value(path, value))

    def _value(self, path: str, value: object) -> str:
        if _ANY.search(path):
            return type(value).__name__
        if _INSTANT.search(path) and isinstance(value, int) and self._is_now(value):
            return "now"
        if _PORT.search(path) and isinstance(value, int) and value > 0:
            return "PORT"
        if isinstance(value, float) and value.is_integer():
            return str(int(value))  # JSON does not tell them apart
        return json.dumps(value)

    def _is_now(self, instant_s: float) -> bool:
        return abs(instant_s - self.now_s()) < _CLOSE_S

    def _without_ids(self, body: bytes) -> str:
        for ident, name in self._names.items():
            body = body.replace(ident, name.encode())
        return _brief(body)


def _brief(body: bytes) -> str:
    text = body.decode("ascii", "backslashreplace")
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(body)} bytes)"
    return shown.replace("\n", "\\n")
