"""Which MQTT names belong to a topic: the table ``[mqtt]``, filters, and names that two filters share. Pure.

A filter's grammar is that of MQTT 5.0, section 4.7: levels between ``/``, ``+`` for one level, ``#`` for all that
follow, at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from srtm.errors import BadInput
from srtm.topics.mqtt_filters import shared_name
from srtm.topics.schema import Schema

V3Excess = Literal["delay", "close", "drop"]

MOST_FILTERS = 64
MOST_GROUPS = 64
MOST_LEVELS = 128  # brokers take no name of more
LONGEST_FILTER = 1_024  # bytes


@dataclass(frozen=True, kw_only=True)
class MqttNames:
    """``filters``: what matches one of them belongs to the topic, besides the name equal to its own.

    ``name``: under which subscribers get what NSQ clients publish, one that a filter matches; "": the topic's own.

    ``v3_excess``: what becomes of a publish of QoS 1 or 2 above the limit whose client speaks MQTT 3.1 or 3.1.1, which
    have no refusal. ``delay``: it waits, also under ``on_excess = "reject"``, and without room the connection ends.
    ``close``: where it would be refused, the connection ends. ``drop``: it is not acknowledged.

    ``groups``: shared subscriptions, ``$share/GROUP/FILTER``, that collect without members too.
    """

    filters: tuple[str, ...] = ()
    name: str = ""
    v3_excess: V3Excess = "delay"
    groups: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Return the table that ``mqtt_names`` turns into this."""
        table = {**asdict(self), "filters": list(self.filters), "groups": list(self.groups)}
        return {key: value for key, value in table.items() if value != ""}


def _filter(value: str) -> str:
    levels = value.split("/")
    if not value or len(value.encode("utf-8", "surrogatepass")) > LONGEST_FILTER or len(levels) > MOST_LEVELS:
        raise ValueError(f"must have 1 to {LONGEST_FILTER:,} bytes and at most {MOST_LEVELS} levels")
    if any(ord(character) < 0x20 or 0xD800 <= ord(character) <= 0xDFFF for character in value):
        raise ValueError("must be text without control characters")
    if value.startswith("$"):
        raise ValueError("must not begin with $: such names are the broker's")
    last_is_sound = "#" not in levels[-1] or levels[-1] == "#"
    if (
        not last_is_sound
        or any("#" in level for level in levels[:-1])
        or any(len(one) > 1 and "+" in one for one in levels)
    ):
        raise ValueError("must be a filter of MQTT: + and # take a whole level, # the last one")
    return value


def _group(value: str) -> str:
    prefix, _, rest = value.partition("/")
    name, _, filter_ = rest.partition("/")
    if prefix != "$share" or not name or {"+", "#"} & set(name) or not filter_:
        raise ValueError("must be a shared subscription: '$share/GROUP/FILTER', as its members subscribe to it")
    _filter(filter_)
    return value


def filter_of(group: str) -> str:
    """The filter of ``$share/GROUP/FILTER``."""
    return group.split("/", 2)[2]


class MqttTable(Schema):
    """The table ``[mqtt]``; every key is optional. ``mqtt_names`` turns it into ``MqttNames``."""

    filters: Annotated[list[Annotated[str, AfterValidator(_filter)]], Field(max_length=MOST_FILTERS)] = Field(
        default_factory=list
    )
    name: Annotated[str, AfterValidator(_filter)] | None = None
    v3_excess: V3Excess = "delay"
    groups: Annotated[list[Annotated[str, AfterValidator(_group)]], Field(max_length=MOST_GROUPS)] = Field(
        default_factory=list
    )


def mqtt_names(table: MqttTable, topic: str) -> MqttNames:
    """Return the names that ``table`` gives to ``topic``. Raises BadInput: two of its filters share a name, ``name`` is
    none of theirs, or a group is there twice or gets none of the topic's messages."""
    for number, one in enumerate(table.filters):
        for other in table.filters[number + 1 :]:
            if (example := shared_name(one, other)) is not None:
                rule = f"must share no name with {other!r} of the same topic: both match {example!r}"
                raise BadInput(f"mqtt.filters[{number}]", one, rule)
    if table.name is not None:
        if {"+", "#"} & set(table.name.split("/")):
            raise BadInput("mqtt.name", table.name, "must be one name, without + and #")
        if all(shared_name(filter_, table.name) is None for filter_ in table.filters):
            raise BadInput("mqtt.name", table.name, "must be matched by one of the topic's filters")
    for number, group in enumerate(table.groups):
        if group in table.groups[:number]:
            raise BadInput(f"mqtt.groups[{number}]", group, "must be there once")
        if all(shared_name(filter_of(group), own) is None for own in (topic, *table.filters)):
            rule = f"must have a filter that matches names of the topic: {topic!r}, or what matches mqtt.filters"
            raise BadInput(f"mqtt.groups[{number}]", group, rule)
    return MqttNames(
        filters=tuple(table.filters), name=table.name or "", v3_excess=table.v3_excess, groups=tuple(table.groups)
    )


def check_disjoint(topic: str, names: MqttNames, others: Iterable[tuple[str, MqttNames]]) -> None:
    """Check that no name belongs to ``topic`` and to one of ``others`` ({name: its names}).

    Raises BadInput, which names both topics and a name that both would own.
    """
    for other, theirs in others:
        pairs = [(topic, filter_) for filter_ in theirs.filters]  # the two names of their own differ
        pairs += [(filter_, name) for filter_ in names.filters for name in (other, *theirs.filters)]
        for own, their in pairs:
            if (example := shared_name(own, their)) is not None:
                rule = f"must share no name with topic {other!r}: {own!r} and {their!r} there both match {example!r}"
                raise BadInput("mqtt.filters", list(names.filters), rule)
