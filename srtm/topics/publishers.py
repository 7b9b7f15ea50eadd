"""A topic's publishers, stored as columns, because there may be a million. ``srtm.topics.publisher_blocks`` reads them.

Rates count messages (msg/s): a publisher with batches of n messages fires rate / n times a second. Publishers with the
same group name fire together, whichever block of the topic file declares them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from srtm.errors import BadInput, NotFound

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Process = Literal["poisson", "periodic"]
Point = tuple[float, float]  # latitude and longitude in degrees, WGS 84

ALONE = -1  # in the column of groups: the publisher has no group
MOST = 10_000_000  # publishers of one topic
LONGEST = 255  # characters of an id or group name, so that it fits into a URL and a log line

_Item = TypeVar("_Item")


@dataclass(frozen=True, kw_only=True)
class PublisherSpec:
    """One publisher."""

    id: str
    rate: float  # msg/s, mean
    correlation_group: str = ""  # "": none
    process: Process = "poisson"
    batch: int = 1  # messages sent at once
    contract: str = ""  # namespace of its contract; "": the topic's


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Publishers from one place, in columns of equal length. Their numbers are checked; ids may still repeat."""

    ids: Sequence[str]
    rates: Sequence[float]
    groups: Sequence[str]  # names, "" for none
    processes: Sequence[Process]
    batches: Sequence[int]
    points: Sequence[Point | None] | None = None  # where they are; None: nobody said so
    place: Callable[[int], str]  # where row i comes from, for error messages
    contracts: Sequence[str] = ()  # namespaces, "" for none; (): no row has one


@dataclass(frozen=True, eq=False)
class Publishers:
    """A topic's publishers in columns of equal length, in the order of the file.

    Only ``join`` makes one: its ids are unique, and all values are in range.
    """

    ids: tuple[str, ...]
    rates: Floats  # msg/s
    groups: Ints  # index into group_names, or ALONE
    group_names: tuple[str, ...]  # in order of first appearance
    periodic: npt.NDArray[np.bool_]  # else Poisson
    batches: Ints
    points: Floats | None = None  # latitude and longitude of each, NaN where unknown; None: nobody said where one is
    contracts: Ints | None = None  # index into contract_names, or ALONE; None: no publisher has one
    contract_names: tuple[str, ...] = ()  # in order of first appearance

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> PublisherSpec:
        return PublisherSpec(
            id=self.ids[index],
            rate=float(self.rates[index]),
            correlation_group=self._name(int(self.groups[index])),
            process="periodic" if self.periodic[index] else "poisson",
            batch=int(self.batches[index]),
            contract=self.contract_of(index),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Publishers):
            return NotImplemented
        same = all(np.array_equal(a, b) for a, b in zip(self._numbers(), other._numbers(), strict=True))
        texts = self._texts() == other._texts() and self._contract_column() == other._contract_column()
        return same and texts and _same_points(self.points, other.points)

    __hash__ = None  # type: ignore[assignment]  # columns of numbers can be compared, but are no key

    @cached_property
    def positions(self) -> dict[str, int]:
        """{id: index}"""
        return {publisher: index for index, publisher in enumerate(self.ids)}

    @cached_property
    def common_contract(self) -> str:
        """The namespace of the contract that all publishers name; "": they do not name the same one."""
        is_common = self.contracts is not None and len(self) > 0 and not self.contracts.any()
        return self.contract_names[0] if is_common else ""

    def contract_of(self, index: int) -> str:
        """Return the namespace of a publisher's contract; "": it names none."""
        number = ALONE if self.contracts is None else int(self.contracts[index])
        return "" if number == ALONE else self.contract_names[number]

    @cached_property
    def load(self) -> float:
        """The sum of the rates, msg/s: the paper's *rate* of the topic."""
        return float(np.sum(self.rates))

    @cached_property
    def all_periodic(self) -> bool:
        """Whether all publishers are periodic; false if there are none."""
        return len(self) > 0 and bool(self.periodic.all())

    @cached_property
    def largest_batch(self) -> int:
        """The largest number of messages that a publisher sends at once."""
        return int(self.batches.max(initial=1))

    def describe_largest_batch(self) -> str:
        """Name the publisher with the largest batch, for people."""
        worst = self[int(self.batches.argmax())]
        return f"publisher {worst.id!r} sends {worst.batch} messages at once"

    def rows(self, place: str) -> Rows:
        """Return the publishers as rows that come from ``place``."""
        return Rows(
            ids=self.ids,
            rates=self.rates.tolist(),
            groups=[self._name(group) for group in self.groups.tolist()],
            processes=["periodic" if periodic else "poisson" for periodic in self.periodic.tolist()],
            batches=self.batches.tolist(),
            points=self.points_of(slice(None)),
            place=lambda _: place,
            contracts=self._contract_column(),
        )

    def points_of(self, keep: Sequence[int] | slice) -> list[Point | None] | None:
        """Where the publishers at these indices are; None: nobody said where one is."""
        return None if self.points is None else [_point(point) for point in self.points[keep].tolist()]

    def changed(self, add: Rows, remove: Iterable[str]) -> Publishers:
        """Return the publishers without ``remove`` and with ``add`` at the end.

        Raises NotFound for an unknown id to remove, BadInput as ``join`` does.
        """
        gone = set(remove)
        for publisher in gone - self.positions.keys():
            raise NotFound("publisher", publisher)
        keep = [index for index, publisher in enumerate(self.ids) if publisher not in gone]
        return join([_picked(self.rows("the topic"), keep), add])

    def to_json(self) -> dict[str, object]:
        """Return one columns block, as ``srtm.topics.publisher_blocks`` reads it."""
        rows = self.rows("")
        return {
            "ids": list(rows.ids),
            "rates": rows.rates,
            "groups": rows.groups,
            "process": _one_if_uniform(rows.processes),
            "batch": _one_if_uniform(rows.batches),
            **coordinates(rows.points),
            **({"contract": _one_if_uniform(rows.contracts)} if rows.contracts else {}),
        }

    def _name(self, group: int) -> str:
        return "" if group == ALONE else self.group_names[group]

    def _contract_column(self) -> list[str]:
        names = [*self.contract_names, ""]  # ALONE is the last
        return [] if self.contracts is None else [names[number] for number in self.contracts.tolist()]

    def _texts(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.ids, self.group_names

    def _numbers(self) -> tuple[npt.NDArray[np.generic], ...]:
        return self.rates, self.groups, self.periodic, self.batches


def join(parts: Sequence[Rows]) -> Publishers:
    """Join rows into one ``Publishers``.

    Raises BadInput for too many rows, an invalid name, or an id that occurs twice (it names both places).
    """
    refuse_too_many(sum(len(rows.ids) for rows in parts))
    for rows in parts:
        _check_names(rows.ids, rows, "id")
        _check_names([name or "-" for name in rows.groups], rows, "correlation_group")
    ids = tuple(publisher for rows in parts for publisher in rows.ids)
    if len(set(ids)) < len(ids):
        raise _listed_twice(parts)
    number = _numbered(rows.groups for rows in parts)
    contract_number = _numbered(rows.contracts for rows in parts)
    return Publishers(
        ids=ids,
        rates=np.array([rate for rows in parts for rate in rows.rates], dtype=np.float64),
        groups=np.array([number[name] for rows in parts for name in rows.groups], dtype=np.int64),
        group_names=tuple(number)[1:],
        periodic=np.array([process == "periodic" for rows in parts for process in rows.processes], dtype=np.bool_),
        batches=np.array([batch for rows in parts for batch in rows.batches], dtype=np.int64),
        points=_joined_points(parts),
        contracts=_contract_numbers(parts, contract_number) if len(contract_number) > 1 else None,
        contract_names=tuple(contract_number)[1:],
    )


def coordinates(points: Sequence[Point | None] | None) -> dict[str, list[float | None]]:
    """The columns ``latitudes`` and ``longitudes`` of JSON; none where nobody said where a publisher is."""
    if points is None:
        return {}
    return {
        "latitudes": [point and point[0] for point in points],
        "longitudes": [point and point[1] for point in points],
    }


def _joined_points(parts: Sequence[Rows]) -> Floats | None:
    if all(point is None for rows in parts for point in rows.points or ()):
        return None
    nowhere = (math.nan, math.nan)
    points = [point or nowhere for rows in parts for point in rows.points or [None] * len(rows.ids)]
    return np.array(points, dtype=np.float64).reshape(-1, 2)


def _point(pair: Sequence[float]) -> Point | None:
    latitude, longitude = pair
    return None if math.isnan(latitude) else (latitude, longitude)


def _same_points(one: Floats | None, other: Floats | None) -> bool:
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other, equal_nan=True)


def _numbered(columns: Iterable[Sequence[str]]) -> dict[str, int]:
    """Number names in order of first appearance; "" is ALONE."""
    number = {"": ALONE}
    for column in columns:
        for name in column:
            number.setdefault(name, len(number) - 1)
    return number


def _contract_numbers(parts: Sequence[Rows], number: dict[str, int]) -> Ints:
    columns = (rows.contracts or [""] * len(rows.ids) for rows in parts)
    return np.array([number[name] for column in columns for name in column], dtype=np.int64)


def refuse_too_many(count: int) -> None:
    """Raises BadInput for more publishers than a topic may have."""
    if count > MOST:
        raise BadInput("publishers", count, f"a topic has at most {MOST:,}")


def _check_names(names: Sequence[str], rows: Rows, field: str) -> None:
    for index, name in enumerate(names):
        if not (0 < len(name) <= LONGEST and name.isprintable()):
            rule = f"must be 1 to {LONGEST} characters, none of them a control character"
            raise BadInput(f"{rows.place(index)}.{field}", name, rule)


def _listed_twice(parts: Sequence[Rows]) -> BadInput:
    seen: dict[str, str] = {}
    for rows in parts:
        for index, publisher in enumerate(rows.ids):
            if publisher in seen:
                return BadInput(f"{rows.place(index)}.id", publisher, f"is listed already, in {seen[publisher]}")
            seen[publisher] = rows.place(index)
    raise AssertionError("no id occurs twice")


def _picked(rows: Rows, keep: Sequence[int]) -> Rows:
    return Rows(
        ids=[rows.ids[index] for index in keep],
        rates=[rows.rates[index] for index in keep],
        groups=[rows.groups[index] for index in keep],
        processes=[rows.processes[index] for index in keep],
        batches=[rows.batches[index] for index in keep],
        points=rows.points and [rows.points[index] for index in keep],
        contracts=[rows.contracts[index] for index in keep] if rows.contracts else (),
        place=lambda index: rows.place(keep[index]),
    )


def _one_if_uniform(column: Sequence[_Item]) -> _Item | list[_Item]:
    return column[0] if len(set(column)) == 1 else list(column)
