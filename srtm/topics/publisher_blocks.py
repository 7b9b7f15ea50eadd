"""Reads the blocks of a topic document that declare publishers into ``Rows``.

A block is a list (``csv_text`` of ``id,rate``, with or without ``correlation_group,latitude,longitude`` and a header;
``srtm.topics.file`` fills it from ``csv``), a model (``count``, ``rate``, ``group_size``, ``id_prefix``) or columns
(``ids``, ``rates``, ``groups``, ``latitudes``, ``longitudes``).
Every refusal names the block, such as ``publishers[0]``, and the line of a CSV.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field

from srtm.csv_table import Shape, read_table
from srtm.errors import BadInput
from srtm.topics.contract_names import ContractName
from srtm.topics.publishers import LONGEST, MOST, Point, Process, Rows, refuse_too_many
from srtm.topics.schema import Schema, parsed

HEADER = ["id", "rate", "correlation_group"]
PLACES = ["latitude", "longitude"]
_LIST = Shape({name: (name,) for name in [*HEADER, *PLACES]}, needed=2, numeric=("rate",))

Rate = Annotated[float, Field(ge=1e-6, le=1e9, allow_inf_nan=False)]  # msg/s; the range of ``srtm.units.to_micro``
Batch = Annotated[int, Field(ge=1, le=1_000_000)]
Latitude = Annotated[float, Field(ge=-90, le=90, allow_inf_nan=False)]  # degrees north, WGS 84
Longitude = Annotated[float, Field(ge=-180, le=180, allow_inf_nan=False)]  # degrees east


def _none_for_nan(value: object) -> object:
    """TOML has no null, so that nan stands for it there."""
    return None if isinstance(value, float) and math.isnan(value) else value


def _column(shape: object) -> BeforeValidator:
    """Accept one value for a whole column. ``shape``: the type for the JSON Schema."""
    return BeforeValidator(lambda value: value if isinstance(value, list) else [value], json_schema_input_type=shape)


_POISSON: list[Process] = ["poisson"]
_NO_CONTRACT: list[ContractName] = [""]


class ListBlock(Schema):
    """Publishers as a CSV list."""

    csv_text: str
    process: Process = "poisson"
    batch: Batch = 1
    contract: ContractName = ""


class ModelBlock(Schema):
    """Publishers as a model: ``count`` publishers with equal values."""

    count: Annotated[int, Field(ge=1, le=MOST)]
    rate: Rate
    group_size: Annotated[int, Field(ge=1)] = 1
    id_prefix: Annotated[str, Field(max_length=LONGEST)] = "publisher-"
    process: Process = "poisson"
    batch: Batch = 1
    contract: ContractName = ""


class ColumnsBlock(Schema):
    """Publishers as columns of equal length."""

    ids: list[str]
    rates: list[Rate]
    groups: list[str | None] | None = None
    latitudes: list[Annotated[Latitude | None, BeforeValidator(_none_for_nan)]] | None = None
    longitudes: list[Annotated[Longitude | None, BeforeValidator(_none_for_nan)]] | None = None
    process: Annotated[list[Process], _column(list[Process] | Process)] = Field(default_factory=_POISSON.copy)
    batch: Annotated[list[Batch], _column(list[Batch] | Batch)] = Field(default_factory=lambda: [1])
    contract: Annotated[list[ContractName], _column(list[ContractName] | ContractName)] = Field(
        default_factory=_NO_CONTRACT.copy
    )


class PublisherTable(Schema):
    """One publisher."""

    id: str
    rate: Rate
    correlation_group: str = ""
    latitude: Latitude | None = None
    longitude: Longitude | None = None
    process: Process = "poisson"
    batch: Batch = 1
    contract: ContractName = ""


class ChangeTable(Schema):
    """The body of ``PATCH .../publishers``."""

    add: list[Any] = Field(default_factory=list)
    remove: list[str] = Field(default_factory=list)


def read_blocks(blocks: Sequence[object]) -> list[Rows]:
    """Read the publishers of all blocks. A few bytes may declare millions, so all are counted before any is made.

    Raises BadInput.
    """
    read = [_read_block(block, index) for index, block in enumerate(blocks)]
    refuse_too_many(sum(count for count, _ in read))
    return [rows() for _, rows in read]


def declared_publishers(document: object) -> int:
    """Return how many publishers a topic's document says that its models have, valid or not."""
    blocks = document.get("publishers") if isinstance(document, dict) else None
    counts = [block.get("count") for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
    return min(sum(count for count in counts if isinstance(count, int) and count > 0), MOST)


def _read_block(block: object, index: int) -> tuple[int, Callable[[], Rows]]:
    """Return how many publishers the block at ``index`` has, and what makes them. Raises BadInput."""
    place = f"publishers[{index}]"
    keys: dict[str, Any] = block if isinstance(block, dict) else {}
    if "csv" in keys:
        raise BadInput(f"{place}.csv", keys["csv"], "a file cannot be read from here: send its text as csv_text")
    if "csv_text" in keys:
        listed = parsed(ListBlock, block, place)
        return 0, partial(_list_rows, listed, f"{place}.csv")  # as long as its text: ``join`` counts its lines
    if "ids" in keys:
        columns = parsed(ColumnsBlock, block, place)
        return len(columns.ids), partial(_column_rows, columns, place)
    if "count" in keys:
        model = parsed(ModelBlock, block, place)
        return model.count, partial(_model_rows, model, place)
    raise BadInput(place, block, "must be a table with csv, csv_text, ids or count")


def read_change(body: object) -> tuple[Rows, list[str]]:
    """Read the body of PATCH .../publishers: rows to add and ids to remove. Raises BadInput."""
    change = parsed(ChangeTable, body)
    added = [parsed(PublisherTable, item, f"add[{index}]") for index, item in enumerate(change.add)]
    rows = Rows(
        ids=[publisher.id for publisher in added],
        rates=[publisher.rate for publisher in added],
        groups=[publisher.correlation_group for publisher in added],
        processes=[publisher.process for publisher in added],
        batches=[publisher.batch for publisher in added],
        points=[
            _point(publisher.latitude, publisher.longitude, f"add[{index}]") for index, publisher in enumerate(added)
        ],
        contracts=[publisher.contract for publisher in added],
        place=lambda index: f"add[{index}]",
    )
    return rows, change.remove


def _model_rows(block: ModelBlock, place: str) -> Rows:
    members = range(block.count)
    grouped = block.group_size > 1
    return Rows(
        ids=[f"{block.id_prefix}{member}" for member in members],
        rates=[block.rate] * block.count,
        groups=[f"{block.id_prefix}group-{member // block.group_size}" if grouped else "" for member in members],
        processes=[block.process] * block.count,
        batches=[block.batch] * block.count,
        contracts=[block.contract] * block.count if block.contract else (),
        place=lambda _: place,
    )


def _column_rows(block: ColumnsBlock, place: str) -> Rows:
    count = len(block.ids)
    groups = [""] * count if block.groups is None else [name or "" for name in block.groups]
    columns: dict[str, Sequence[object]] = {"rates": block.rates, "groups": groups}
    latitudes, longitudes = block.latitudes, block.longitudes
    if latitudes is not None or longitudes is not None:
        nowhere: list[float | None] = [None] * count
        latitudes, longitudes = latitudes or nowhere, longitudes or nowhere
        columns |= {"latitudes": latitudes, "longitudes": longitudes}
    for field, column in columns.items():
        if len(column) != count:
            raise BadInput(f"{place}.{field}", f"{len(column)} entries", f"must have one for each of the {count} ids")
    return Rows(
        ids=block.ids,
        rates=block.rates,
        groups=groups,
        processes=_spread(block.process, count, f"{place}.process"),
        batches=_spread(block.batch, count, f"{place}.batch"),
        points=None
        if latitudes is None or longitudes is None
        else [
            _point(north, east, f"{place}[{index}]")
            for index, (north, east) in enumerate(zip(latitudes, longitudes, strict=True))
        ],
        contracts=_spread(block.contract, count, f"{place}.contract") if any(block.contract) else (),
        place=lambda index: f"{place}[{index}]",
    )


def _spread(column: list[Any], count: int, field: str) -> list[Any]:
    if len(column) not in (1, count):
        raise BadInput(field, f"{len(column)} entries", f"must be one value, or one for each of the {count} ids")
    return column * count if len(column) == 1 else column


def _point(latitude: float | None, longitude: float | None, place: str) -> Point | None:
    if latitude is None or longitude is None:
        if latitude is not longitude:
            missing = "latitude" if latitude is None else "longitude"
            raise BadInput(f"{place}.{missing}", None, "must be given where the other of latitude and longitude is")
        return None
    return latitude, longitude


def _list_rows(block: ListBlock, place: str) -> Rows:
    rows = list(_csv_rows(block.csv_text, place))
    if not rows:
        raise BadInput(place, block.csv_text, "must have a line for each publisher, such as sensor-1,2.5")
    return Rows(
        ids=[row.id for row in rows],
        rates=[row.rate for row in rows],
        groups=[row.group for row in rows],
        processes=[block.process] * len(rows),
        batches=[block.batch] * len(rows),
        points=[row.point for row in rows],
        contracts=[block.contract] * len(rows) if block.contract else (),
        place=lambda index: f"{place} line {rows[index].line}",
    )


class _CsvRow(NamedTuple):
    line: int
    id: str
    rate: float
    group: str
    point: Point | None


def _csv_rows(text: str, where: str) -> Iterator[_CsvRow]:
    """Raises BadInput."""
    for line, cells in read_table(text, where, _LIST):
        yield _csv_row(cells, f"{where} line {line}", line)


def _csv_row(cells: Sequence[str], where: str, line: int) -> _CsvRow:
    publisher, rate_text, group, *place = cells
    rate = _number(f"{where}.rate", rate_text, "must be a number of msg/s")
    if not 1e-6 <= rate <= 1e9:  # false for NaN too
        raise BadInput(f"{where}.rate", rate_text, "must be from 0.000001 to 1e9 msg/s")
    north, east = (
        _degrees(f"{where}.{name}", cell, most) for name, cell, most in zip(PLACES, place, (90, 180), strict=True)
    )
    return _CsvRow(line, publisher, rate, group, _point(north, east, where))


def _degrees(field: str, text: str, most: int) -> float | None:
    if not text:
        return None
    value = _number(field, text, "must be a number of degrees")
    if not -most <= value <= most:  # false for NaN too
        raise BadInput(field, text, f"must be from -{most} to {most} degrees")
    return value


def _number(field: str, text: str, rule: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInput(field, text, rule) from None
