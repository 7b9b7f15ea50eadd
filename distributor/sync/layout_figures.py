"""What the layout loops have done, for people and metrics. ``jobs`` writes it, ``views`` shows it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class LayoutFigures:
    """``moves``: publishers that got another broker, since the start; ``searches``: {outcome: searches that ended so};
    ``states``: {topic: what its loop is doing}."""

    moves: int = 0
    searches: dict[str, int] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
