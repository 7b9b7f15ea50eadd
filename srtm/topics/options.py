"""Reads a topic's options as an operator writes them: the table ``[adaptation]``, and changes to a running topic.

``srtm.topics.adaptation`` defines the values, without pydantic, because brokers use them.
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
    """The table ``[adaptation]``; every key is optional. ``checked`` turns it into an ``Adaptation``."""

    window_s: Seconds | None = None
    interval_s: Seconds | None = None
    floor: Annotated[float, Field(ge=0, le=LARGEST_FLOOR, allow_inf_nan=False)] | None = None
    dead_band: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    partners: Partners | None = None
    indicator: Indicator | None = None


class OptionsTable(Schema):
    """The body of ``PATCH /v1/topics/NAME``."""

    mode: Mode | None = None
    split: Literal["fitted", "proportional"] | None = None
    adaptation: AdaptationTable = Field(default_factory=AdaptationTable)


def checked(table: AdaptationTable, base: Adaptation) -> Adaptation:
    """Return ``base`` with the values of ``table``. Raises BadInput."""
    changed = replace(base, **table.model_dump(exclude_none=True))
    if changed.interval_s > changed.window_s:
        rule = f"must be at most adaptation.window_s, {changed.window_s:g}: traffic between windows would not count"
        raise BadInput("adaptation.interval_s", changed.interval_s, rule)
    return changed


def read_options(body: object) -> tuple[dict[str, Any], AdaptationTable]:
    """Read ``{"mode", "split", "adaptation": {...}}`` and return the topic's options and its adaptation table.

    Any key may be missing, but not all. Raises BadInput.
    """
    table = parsed(OptionsTable, body)
    options = table.model_dump(exclude_none=True, exclude={"adaptation"})
    if not table.model_fields_set:
        raise BadInput("body", body, "must say what to change: mode, split or adaptation")
    return options, table.adaptation


def table_of(adaptation: Adaptation) -> dict[str, object]:
    """Return the table that ``checked`` turns into ``adaptation``."""
    return asdict(adaptation)
