"""The publishers of a scenario file: drawn (so many of such a rate, alone or in groups) or replayed from a recording.

Recordings are what ``srtm topic size`` reads: a broker's trace, or a CSV with ``arrival_ns`` and ``publisher``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from bench.harness.load.workload import Publishers, modelled
from srtm.analysis.arrivals import Arrivals, read_arrivals
from srtm.errors import BadInput
from srtm.topics.schema import Schema, parsed

_SECOND_NS = 1_000_000_000
_UNNAMED = "recorded"  # of a CSV that does not say who sent


class _Drawn(Schema):
    count: Annotated[int, Field(ge=1, le=1_000_000)]
    rate: Annotated[float, Field(gt=0, le=1e6)]
    process: Literal["poisson", "periodic", "staggered"] = "poisson"
    batch: Annotated[int, Field(ge=1)] = 1
    group_size: Annotated[int, Field(ge=1)] = 1
    noise_ms: Annotated[float, Field(ge=0, le=86_400_000)] = 0.0
    id_prefix: str | None = None


class _Recorded(Schema):
    trace: str
    id_prefix: str = ""


@dataclass(frozen=True)
class Block:
    """``place``: where it stands in the file. ``ends_s``: just after its last message; None: it goes on for ever."""

    place: str
    publishers: Publishers
    ends_s: float | None = None

    def until(self, end_s: float) -> Block:
        """Without what a recording holds from ``end_s`` on, and without whom it names from then on only."""
        if self.ends_s is None:
            return self
        end_ns, all_of_them = round(end_s * _SECOND_NS), self.publishers
        kept = [instants[: int(np.searchsorted(instants, end_ns))] for instants in all_of_them.instants_ns]
        found = [(name, instants) for name, instants in zip(all_of_them.ids, kept, strict=True) if instants]
        return replace(self, publishers=_replayed(found, all_of_them.target[0], end_s))


def read_block(block: object, target: int, place: str, id_prefix: str, folder: Path) -> Block:
    """``id_prefix``: of those that have none. Raises BadInput."""
    keys: dict[str, Any] = block if isinstance(block, dict) else {}
    if "trace" in keys:
        drawn = [key for key in keys if key in _Drawn.model_fields.keys() - _Recorded.model_fields.keys()]
        if drawn:
            raise BadInput(f"{place}.{drawn[0]}", keys[drawn[0]], "must not be given beside trace: it is as recorded")
        return _recorded(parsed(_Recorded, block, place), target, place, folder)
    if "count" in keys or keys.keys() - _Drawn.model_fields.keys():  # one of which may be a mistyped count
        return Block(place, _drawn(parsed(_Drawn, block, place), target, place, id_prefix))
    raise BadInput(place, block, "must be a table with count or trace")


def _drawn(block: _Drawn, target: int, place: str, id_prefix: str) -> Publishers:
    if block.noise_ms and block.group_size == 1:
        raise BadInput(f"{place}.noise_ms", block.noise_ms, "must be 0 without groups: it spreads their members")
    return modelled(
        [target] * block.count,
        block.rate,
        group_size=block.group_size,
        noise_ns=round(block.noise_ms * 1e6),
        id_prefix=id_prefix if block.id_prefix is None else block.id_prefix,
        process=block.process,
        batch=block.batch,
    )


def _recorded(block: _Recorded, target: int, place: str, folder: Path) -> Block:
    try:
        arrivals = read_arrivals(folder / block.trace)
    except BadInput as error:
        raise BadInput(f"{place}.trace", error.value, error.rule) from error
    if not len(arrivals):
        raise BadInput(f"{place}.trace", block.trace, "must hold at least one message")
    sent = [(block.id_prefix + (name or _UNNAMED), instants) for name, instants in _by_publisher(arrivals)]
    ends_s = arrivals.seconds + 1e-3
    return Block(place, _replayed(sent, target, ends_s), ends_s)


def _by_publisher(arrivals: Arrivals) -> list[tuple[str, list[int]]]:
    """(name, ns since the recording began) of each."""
    since_ns = arrivals.arrival_ns - arrivals.arrival_ns[0]
    order = np.argsort(arrivals.publisher, kind="stable")
    ends = np.searchsorted(arrivals.publisher[order], np.arange(1, len(arrivals.names)))
    return [(name, part.tolist()) for name, part in zip(arrivals.names, np.split(since_ns[order], ends), strict=True)]


def _replayed(sent: list[tuple[str, list[int]]], target: int, within_s: float) -> Publishers:
    """Each message of a recording is one of its own; rates are means over ``within_s``."""
    count = len(sent)
    return Publishers(
        ids=[name for name, _ in sent],
        target=[target] * count,
        rate=[len(instants) / within_s for _, instants in sent],
        batch=[1] * count,
        group=[-1] * count,
        process=["trace"] * count,
        instants_ns=[instants for _, instants in sent],
    )
