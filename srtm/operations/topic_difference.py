"""What differs between two documents of a topic, in lines for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from srtm.text import figure

_SHOWN = 20  # publishers of one kind

_COLUMNS = {
    "rates": None,
    "groups": None,
    "process": None,
    "batch": None,
    "contract": "",
    "latitudes": None,
    "longitudes": None,
}
# rate, group, process, batch, contract, where
_Publisher = tuple[float, str, str, int, str, float | None, float | None]


def differences(now: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
    """Lines that say how ``then`` differs from ``now``, both as ``TopicSpec.to_json``. None: it is the same topic."""
    return [*settings(now, then), *_publishers(_by_id(now), _by_id(then))]


def settings(now: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
    """Lines for the values that differ, without publishers, which ``publisher_lines`` has."""
    return list(_settings("", now, then))


def _settings(place: str, now: Mapping[str, Any], then: Mapping[str, Any]) -> Iterator[str]:
    for key in [*now, *(key for key in then if key not in now)]:
        before, after = _by_name(now.get(key)), _by_name(then.get(key))
        if key == "publishers" or before == after:
            continue
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _settings(f"{place}{key}.", before, after)
        else:
            yield f"{place}{key}: {_shown(before)} -> {_shown(after)}"


def _by_name(value: Any) -> Any:
    """A list of tables with a name each, such as policies, as a table of them; else ``value``."""
    if isinstance(value, list) and value and all(isinstance(each, Mapping) and "name" in each for each in value):
        return {each["name"]: each for each in value}
    return value


def _shown(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "-" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return figure(value, 6)


def _by_id(document: Mapping[str, Any]) -> dict[str, _Publisher]:
    found: dict[str, _Publisher] = {}
    for block in document.get("publishers", []):
        ids = block["ids"]
        columns = (_column(block.get(key, missing), len(ids)) for key, missing in _COLUMNS.items())
        found.update(zip(ids, zip(*columns, strict=True), strict=True))
    return found


def _column(value: Any, length: int) -> list[Any]:
    return value if isinstance(value, list) else [value] * length


def _publishers(now: Mapping[str, _Publisher], then: Mapping[str, _Publisher]) -> Iterator[str]:
    added = [f"+ {publisher}, {_rate(then[publisher][0])}" for publisher in then if publisher not in now]
    removed = [f"- {publisher}, {_rate(now[publisher][0])}" for publisher in now if publisher not in then]
    changed = [
        f"~ {publisher}: {_described(now[publisher])} -> {_described(then[publisher])}"
        for publisher in now
        if publisher in then and now[publisher] != then[publisher]
    ]
    for lines in (removed, added, changed):
        yield from lines[:_SHOWN]
        if len(lines) > _SHOWN:
            yield f"  and {len(lines) - _SHOWN:,} more"


def publisher_lines(changes: Mapping[str, Any]) -> list[str]:
    """Lines on changed publishers, given as ``srtm.web.audit_entry.PublisherChanges`` in JSON."""
    kinds: dict[str, list[str]] = {"removed": [], "added": [], "changed": []}
    for change in changes["first"]:
        before, after = change["before"], change["after"]
        if before is None:
            kinds["added"].append(f"+ {change['id']}, {_described(_of_json(after))}")
        elif after is None:
            kinds["removed"].append(f"- {change['id']}, {_described(_of_json(before))}")
        else:
            was, now = (_described(_of_json(each)) for each in (before, after))
            kinds["changed"].append(f"~ {change['id']}: {was} -> {now}")
    found = []
    for kind, lines in kinds.items():
        rest = changes[kind] - len(lines)
        found += [*lines, *([f"  and {rest:,} more {kind}"] if rest else [])]
    return found


def _of_json(publisher: Mapping[str, Any]) -> _Publisher:
    north, east = publisher.get("latitude"), publisher.get("longitude")
    names = publisher.get("correlation_group", ""), publisher.get("process", "poisson")
    return publisher["rate"], *names, publisher.get("batch", 1), publisher.get("contract", ""), north, east


def _rate(rate: float) -> str:
    return f"{figure(rate, 6)} msg/s"


def _described(publisher: _Publisher) -> str:
    rate, group, process, batch, contract, north, east = publisher
    parts = [_rate(rate), group and f"group {group}", process, f"{batch} at once" if batch != 1 else ""]
    parts.append(contract and f"contract {contract}")
    parts.append("" if north is None else f"at {north:g}, {east:g}")
    return ", ".join(part for part in parts if part)
