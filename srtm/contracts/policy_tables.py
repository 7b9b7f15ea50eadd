"""Reads a policy as its operator writes it. Every refusal is one BadInput that names field, value and rule."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from srtm.contracts.duration import duration_ns, duration_text
from srtm.contracts.policy import (
    LARGEST_LOG,
    LONGEST_NS,
    MOST_SLICES,
    Bucket,
    Concurrency,
    Log,
    Pace,
    Policy,
    Window,
)
from srtm.errors import BadInput
from srtm.topics.schema import Schema, parsed
from srtm.units import LARGEST, MICRO, to_micro

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_SHORTEST_NS = 10**6
_SLICES = 5  # of a window that does not say: the error of its count is below a fifth of a slice


def _policy_name(value: str) -> str:
    if _NAME.fullmatch(value) is None:
        raise ValueError("must be 1 to 64 letters, digits, dots, dashes or underscores, the first a letter or digit")
    return value


def _read_ns(value: object) -> int:
    if not isinstance(value, str):
        raise ValueError('must be text such as "90s" or "1d"')  # noqa: TRY004  (pydantic reads no other)
    return duration_ns(value)


def _duration(value: object) -> int:
    length = _read_ns(value)
    if not _SHORTEST_NS <= length <= LONGEST_NS:
        raise ValueError("must be from 1ms to 366d")
    return length


def _wait(value: object) -> int:
    length = _read_ns(value)
    if not 0 <= length <= LONGEST_NS:
        raise ValueError("must be from 0 to 366d")
    return length


Name = Annotated[str, AfterValidator(_policy_name)]
Duration = Annotated[int, BeforeValidator(_duration)]  # ns
Wait = Annotated[int, BeforeValidator(_wait)]  # ns
Amount = Annotated[float, Field(gt=0, le=LARGEST)]
Burst = Annotated[float, Field(ge=1, le=LARGEST)]
Quota = Annotated[int, Field(ge=1, le=2**32 - 1)]


class MaxInTable(Schema):
    """At most ``count`` in any ``within``: a promise over a window, kept by a bucket."""

    count: Annotated[float, Field(ge=2, le=LARGEST)]
    within: Duration


class BucketTable(Schema):
    name: Name
    kind: Literal["bucket"] = "bucket"
    rate: Amount | None = None
    burst: Burst | None = None
    max_in: MaxInTable | None = None
    max_debt: Annotated[float, Field(ge=0, le=LARGEST)] | None = None
    persist: bool = False


class PaceTable(Schema):
    name: Name
    kind: Literal["pace"]
    rate: Amount
    burst: Burst = 1.0
    max_wait: Wait
    persist: bool = False


class WindowTable(Schema):
    name: Name
    kind: Literal["window"]
    quota: Quota
    window: Duration
    slices: Annotated[int, Field(ge=1, le=MOST_SLICES)] = _SLICES
    weighted: bool = True
    aligned: bool = False
    persist: bool = False


class LogTable(Schema):
    name: Name
    kind: Literal["log"]
    quota: Quota
    window: Duration


class ConcurrencyTable(Schema):
    name: Name
    kind: Literal["concurrency"]
    quota: Quota
    expires: Duration = 60 * 10**9


def read_policy(value: object, place: str) -> Policy:
    """Read the policy at ``place`` of a document. Raises BadInput."""
    if not isinstance(value, dict):
        raise BadInput(place, value, "must be a table with name and kind")
    kind = value.get("kind", "bucket")
    read = _KINDS.get(kind) if isinstance(kind, str) else None
    if read is None:
        raise BadInput(f"{place}.kind", kind, f"must be one of {', '.join(_KINDS)}")
    return read(value, place)


def _bucket(value: Any, place: str) -> Policy:
    table = parsed(BucketTable, value, place)
    rate, burst = _rate_and_burst(table, place)
    debt = burst if table.max_debt is None else round(table.max_debt * MICRO)
    if debt * 10**9 > rate * LONGEST_NS:
        rule = f"must be paid within 366 days: at most {rate * LONGEST_NS / 1e15:.0f} at this rate"
        raise BadInput(f"{place}.max_debt", debt / MICRO, rule)
    return Bucket(name=table.name, rate_micro=rate, burst_micro=burst, max_debt_micro=debt, persist=table.persist)


def _rate_and_burst(table: BucketTable, place: str) -> tuple[int, int]:
    if table.max_in is None:
        if table.rate is None or table.burst is None:
            missing = "rate" if table.rate is None else "burst"
            raise BadInput(f"{place}.{missing}", None, "is required: give rate and burst, or max_in")
        return to_micro(table.rate, f"{place}.rate"), to_micro(table.burst, f"{place}.burst")
    if table.rate is not None:
        raise BadInput(f"{place}.max_in", "given", "must not go with rate: the rate follows from it")
    # A bucket lets burst + rate * within through in one window, so that must not be more than count.
    count, within = to_micro(table.max_in.count, f"{place}.max_in.count"), table.max_in.within
    burst = max(MICRO, count // 2) if table.burst is None else to_micro(table.burst, f"{place}.burst")
    rate = (count - burst) * 10**9 // within
    if rate < 1:
        rule = "must leave a rate: less than max_in.count, by what can be counted in max_in.within"
        raise BadInput(f"{place}.burst", burst / MICRO, rule)
    return rate, burst


def _pace(value: Any, place: str) -> Policy:
    table = parsed(PaceTable, value, place)
    rate, burst = to_micro(table.rate, f"{place}.rate"), to_micro(table.burst, f"{place}.burst")
    return Pace(name=table.name, rate_micro=rate, burst_micro=burst, max_wait_ns=table.max_wait, persist=table.persist)


def _window(value: Any, place: str) -> Policy:
    table = parsed(WindowTable, value, place)
    window = table.window
    if window % table.slices:
        near = [slices for slices in range(1, MOST_SLICES + 1) if window % slices == 0]
        near = sorted(sorted(near, key=lambda slices: abs(slices - table.slices))[:2])
        rule = f"must divide the window of {duration_text(window)} into whole nanoseconds, as {near[0]}"
        raise BadInput(f"{place}.slices", table.slices, rule + (f" and {near[1]} do" if len(near) > 1 else " does"))
    return Window(
        name=table.name,
        quota=table.quota,
        window_ns=window,
        slices=table.slices,
        weighted=table.weighted,
        aligned=table.aligned,
        persist=table.persist,
    )


def _log(value: Any, place: str) -> Policy:
    table = parsed(LogTable, value, place)
    if table.quota > LARGEST_LOG:
        rule = f'must be at most {LARGEST_LOG}: a log keeps a time for each request; use kind = "window", slices = 60'
        raise BadInput(f"{place}.quota", table.quota, rule)
    return Log(name=table.name, quota=table.quota, window_ns=table.window)


def _concurrency(value: Any, place: str) -> Policy:
    table = parsed(ConcurrencyTable, value, place)
    return Concurrency(name=table.name, quota=table.quota, expires_ns=table.expires)


_KINDS = {"bucket": _bucket, "pace": _pace, "window": _window, "log": _log, "concurrency": _concurrency}
