"""How a topic's shares are adapted, as an operator writes it: the table ``[adaptation]``, and changes to a topic that
runs.

``srtm.topics.adaptation`` has the values; they come without pydantic, for brokers.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any, Literal

from pydantic import Field

from srtm.errors import BadInput
from srtm.topics.adaptation import LARGEST_FLOOR, LONGEST_S, SHORTEST_S, Adaptation, Indicator, Mode, Partners
from srtm.topics.schema import Schema, parsed

Seconds = Annotated[float, Field(ge=SHORTEST_S, le=LONGEST_S, allow_inf_nan=False)]


class AdaptationTable(Schema):
    """Everything may be left out. ``checked`` makes an ``Adaptation`` of it."""

    window_s: Seconds | None = None
    interval_s: Seconds | None = None
    floor: Annotated[float, Field(ge=0, le=LARGEST_FLOOR, allow_inf_nan=False)] | None = None
    dead_band: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    partners: Partners | None = None
    indicator: Indicator | None = None


class OptionsTable(Schema):
    """The body of ``PATCH`` of a topic."""

    mode: Mode | None = None
    split: Literal["fitted", "proportional"] | None = None
    adaptation: AdaptationTable = Field(default_factory=AdaptationTable)


def checked(table: AdaptationTable, base: Adaptation) -> Adaptation:
    """``base`` with what ``table`` says. Raises BadInput."""
    made = replace(base, **table.model_dump(exclude_none=True))
    if made.interval_s > made.window_s:
        rule = f"must be at most adaptation.window_s, {made.window_s:g}: what comes between two windows would not count"
        raise BadInput("adaptation.interval_s", made.interval_s, rule)
    return made


def read_options(body: object) -> tuple[dict[str, Any], AdaptationTable]:
    """Of ``{"mode", "split", "adaptation": {...}}``, of which any may be missing: what is said of the topic, and of its
    adaptation. Raises BadInput."""
    options = parsed(OptionsTable, body)
    said = options.model_dump(exclude_none=True, exclude={"adaptation"})
    if not options.model_fields_set:
        raise BadInput("body", body, "must say what to change: mode, split or adaptation")
    return said, options.adaptation


def table_of(adaptation: Adaptation) -> dict[str, object]:
    """What ``checked`` makes this very value of."""
    return asdict(adaptation)
