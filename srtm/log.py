"""Log lines on standard error: as text (name, time in UTC, level, what, facts as ``key=value``), or as JSON.

No library is used: structlog's import takes 0.1 s of the 0.3 s in which a broker must answer.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal, get_args

Level = Literal["debug", "info", "warn", "error", "fatal"]
Format = Literal["text", "json"]
LEVELS: tuple[Level, ...] = get_args(Level)
FORMATS: tuple[Format, ...] = get_args(Format)
_PLAIN = re.compile(r"[^\s\"=]+")

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The id of the HTTP request that the present task works on: lines name it."""


def _to_stderr(line: str) -> None:
    sys.stderr.write(line)
    sys.stderr.flush()


@dataclass
class LogSettings:
    """What is written, and how. Logs may share one, and it may change while they are in use."""

    level: Level = "info"  # the lowest that is written
    format: Format = "text"

    def lets(self, level: Level) -> bool:
        """Whether lines of ``level`` are written."""
        return LEVELS.index(level) >= LEVELS.index(self.level)


PROCESS = LogSettings()
"""Of every log that is given no other: a service's command sets it at its start."""


@dataclass(frozen=True)
class Log:
    """Writes lines in the name of ``who``, a broker or service. ``write`` receives whole lines."""

    who: str
    write: Callable[[str], object] = _to_stderr
    settings: LogSettings = field(default_factory=lambda: PROCESS)

    def debug(self, what: str, **facts: object) -> None:
        """Write a line for whoever looks for a fault."""
        self._say("debug", "DEBUG", what, facts)

    def info(self, what: str, **facts: object) -> None:
        """Write a line on normal operation."""
        self._say("info", "INFO", what, facts)

    def warning(self, what: str, **facts: object) -> None:
        """Write a line on trouble that the service handles."""
        self._say("warn", "WARNING", what, facts)

    def failure(self, what: str, **facts: object) -> None:
        """Write a line on something that does not work."""
        self._say("error", "ERROR", what, facts)

    def _say(self, level: Level, shown: str, what: str, facts: dict[str, object]) -> None:
        if not self.settings.lets(level):
            return
        request_id = REQUEST_ID.get()
        if request_id is not None:
            facts = {**facts, "request_id": request_id}
        form = format_json if self.settings.format == "json" else format_line
        self.write(form(self.who, shown, what, facts, time.time_ns()))


def format_line(who: str, level: str, what: str, facts: dict[str, object], wall_ns: int) -> str:
    """Format one line. Line ends inside values are escaped, so that a hostile name cannot forge a line."""
    tail = "".join(f" {key}={_shown(str(value))}" for key, value in facts.items())
    return f"{who} {_instant(wall_ns)} {level}: {what}{tail}\n"


def format_json(who: str, level: str, what: str, facts: dict[str, object], wall_ns: int) -> str:
    """Format one line as a JSON object in ASCII: time, level, service and message, then the facts.

    No fact can take the place of these four.
    """
    head = {"time": _instant(wall_ns), "level": level.lower(), "service": who, "message": what}
    rest = {key: _plain(value) for key, value in facts.items() if key not in head}
    return f"{json.dumps({**head, **rest})}\n"


def _instant(wall_ns: int) -> str:
    seconds, rest_ns = divmod(wall_ns, 10**9)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest_ns // 10**6:03d}Z"


def _shown(value: str) -> str:
    return value if _PLAIN.fullmatch(value) and value.isprintable() else repr(value)


def _plain(value: object) -> object:
    """A value that JSON knows; what is no number, nothing, or true or false is text."""
    is_number = isinstance(value, int | float) and math.isfinite(value)  # also of bool
    return value if value is None or is_number else str(value)
