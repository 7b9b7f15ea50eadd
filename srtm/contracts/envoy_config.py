"""Reads configurations of envoyproxy/ratelimit (YAML: a domain and a tree of descriptors) as contracts.

Each ``rate_limit`` becomes a contract of one window, which by default counts as Envoy's does: fixed, and aligned to the
wall clock. What contracts cannot say is refused, not left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from typing import Any

import yaml

from srtm.contracts.contract import Contract, read_contract
from srtm.contracts.envoy import UNITS, encoded
from srtm.errors import BadInput

_MOST_DESCRIPTORS = 100_000
_DEEPEST = 32
_LARGEST = 2**32 - 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_OF_METRICS = {"detailed_metric", "value_to_metric"}  # which ours has not: a subject is never a label
_ROOT_KEYS = {"domain", "descriptors"}
_DESCRIPTOR_KEYS = {"key", "value", "rate_limit", "descriptors", "shadow_mode", *_OF_METRICS}
_LIMIT_KEYS = {"unit", "requests_per_unit", "unlimited", "name"}
_NOT_MAPPED = {
    "replaces": "cannot be mapped: of several descriptors all count; give the wider one the larger limit",
    "share_threshold": "cannot be mapped: every value has a limit of its own; limit a key with a fixed value instead",
    "unit_multiplier": "cannot be mapped: write the contract with this window by hand",
    "quota_mode": "cannot be mapped: write the contract by hand, with shadow = true",
}

# What PyYAML lets out: of values that are not what their tags say, Python's own errors.
_NOT_YAML = (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)

_Table = dict[str, Any]
_Entry = tuple[str, str]  # key and value; "": any value; with * at its end: any that begins so


def read_envoy_config(text: str, slices: int = 1) -> list[Contract]:
    """Return the contracts of a configuration. Raises BadInput.

    ``slices``: 1: fixed windows, as Envoy counts; more: windows that roll, in so many slices.
    """
    try:
        document = yaml.safe_load(text)
    except RecursionError:
        raise BadInput("file", None, "must not be nested so deeply") from None
    except _NOT_YAML as error:
        raise BadInput("file", None, f"must be YAML: {' '.join(str(error).split())}") from None
    root = _table(document, "file", _ROOT_KEYS)
    domain = root.get("domain")
    if not isinstance(domain, str) or not domain:
        raise BadInput("domain", domain, "must be a name")
    found: list[Contract] = []
    places: dict[str, str] = {}
    for place, path, descriptor in _limited(root.get("descriptors"), "descriptors", (), count(1)):
        contract = _contract(domain, path, descriptor, place, slices)
        first = places.setdefault(contract.subject, place)
        if first != place:
            raise BadInput(place, contract.subject, f"is what {first} limits already")
        found.append(contract)
    if not found:
        raise BadInput("descriptors", None, "must have a rate_limit")
    return found


def _limited(
    descriptors: object, place: str, above: tuple[_Entry, ...], numbers: Iterator[int]
) -> Iterator[tuple[str, tuple[_Entry, ...], _Table]]:
    """Place, entries and table of each descriptor that has a limit, depth first. ``numbers`` counts all descriptors."""
    if descriptors is None:
        return
    if not isinstance(descriptors, list):
        raise BadInput(place, descriptors, "must be a list")
    if len(above) >= _DEEPEST:
        raise BadInput(place, f"{len(above)} levels", f"must be at most {_DEEPEST} levels deep")
    for number, each in enumerate(descriptors):
        here = f"{place}[{number}]"
        if next(numbers) > _MOST_DESCRIPTORS:  # YAML's aliases multiply
            raise BadInput(here, f"more than {_MOST_DESCRIPTORS}", f"must be at most {_MOST_DESCRIPTORS} descriptors")
        descriptor = _table(each, here, _DESCRIPTOR_KEYS)
        path = (*above, _entry(descriptor, here, above))
        if descriptor.get("rate_limit") is not None:
            yield here, path, descriptor
        yield from _limited(descriptor.get("descriptors"), f"{here}.descriptors", path, numbers)


def _entry(descriptor: _Table, place: str, above: tuple[_Entry, ...]) -> _Entry:
    key = descriptor.get("key")
    value = descriptor.get("value")
    if not isinstance(key, str) or not key:
        raise BadInput(f"{place}.key", key, "must be a name")
    if isinstance(value, bool) or not isinstance(value, str | int | float | None):
        raise BadInput(f"{place}.value", value, "must be text: put it into quotes")
    shown = "" if value is None else str(value)
    if "*" in shown[:-1]:
        raise BadInput(f"{place}.value", shown, "may have a * at its end only")
    if shown and any(_is_open(earlier) for _, earlier in above):
        rule = (
            "must not follow an entry that may have any value: a pattern is fixed first, and open at its end; name the "
            "fixed entries first, here and in the actions of Envoy's routes"
        )
        raise BadInput(f"{place}.value", shown, rule)
    return key, shown


def _is_open(value: str) -> bool:
    return not value or value.endswith("*")


def _contract(domain: str, path: tuple[_Entry, ...], descriptor: _Table, place: str, slices: int) -> Contract:
    limit = _table(descriptor["rate_limit"], f"{place}.rate_limit", _LIMIT_KEYS)
    is_unlimited = _switch(limit, "unlimited", f"{place}.rate_limit")
    shadow = _switch(descriptor, "shadow_mode", place)
    window = _window(limit, f"{place}.rate_limit", slices) if not is_unlimited else _unlimited(limit, place)
    name = limit.get("name")
    if name is not None and (not isinstance(name, str) or _NAME.fullmatch(name) is None):
        rule = "must be 1 to 64 letters, digits, dots, dashes or underscores: it is in headers"
        raise BadInput(f"{place}.rate_limit.name", name, rule)
    policy = {"name": name or str(limit.get("unit", "unlimited")).lower(), "kind": "window", **window}
    subject = _pattern(path)
    document = {"namespace": domain, "subject": subject, "policies": [policy], "shadow": shadow or is_unlimited}
    return read_contract(document, place)


def _pattern(path: tuple[_Entry, ...]) -> str:
    keys = "|".join(encoded(key, "=") for key, _ in path)
    fixed: list[str] = []
    for _, value in path:
        fixed.append(encoded(value.removesuffix("*")))
        if _is_open(value):
            return f"{keys}={'|'.join(fixed)}*"
    return f"{keys}={'|'.join(fixed)}"


def _window(limit: _Table, place: str, slices: int) -> _Table:
    unit = limit.get("unit")
    if not isinstance(unit, str) or unit.upper() not in UNITS:
        raise BadInput(f"{place}.unit", unit, f"must be {', '.join(UNITS).lower()}")
    quota = limit.get("requests_per_unit")
    if isinstance(quota, bool) or not isinstance(quota, int) or not 1 <= quota <= _LARGEST:
        raise BadInput(f"{place}.requests_per_unit", quota, f"must be a whole number from 1 to {_LARGEST}")
    _, seconds = UNITS[unit.upper()]
    rolls = slices > 1
    return {"quota": quota, "window": f"{seconds}s", "slices": slices, "weighted": rolls, "aligned": not rolls}


def _unlimited(limit: _Table, place: str) -> _Table:
    """A window that nobody fills; its contract is a shadow, and refuses nobody."""
    if limit.get("unit") is not None or limit.get("requests_per_unit") is not None:
        raise BadInput(f"{place}.rate_limit.unlimited", True, "must stand alone, without unit and requests_per_unit")
    return {"quota": _LARGEST, "window": "1s", "slices": 1, "weighted": False, "aligned": True}


def _switch(table: _Table, key: str, place: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise BadInput(f"{place}.{key}", value, "must be true or false")
    return value


def _table(value: object, place: str, known: set[str]) -> _Table:
    if not isinstance(value, dict):
        raise BadInput(place, value, "must be a table of keys and values")
    for key in value:
        if key in _NOT_MAPPED:
            raise BadInput(f"{place}.{key}", value[key], _NOT_MAPPED[key])
        if key not in known:
            raise BadInput(f"{place}.{key}", value[key], f"is not known here: {', '.join(sorted(known))} are")
    return value
