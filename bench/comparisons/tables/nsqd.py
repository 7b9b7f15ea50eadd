"""``srtm bench nsqd``: our broker in nsqd's place beside the real nsqd 1.3.0, and beside the floor."""

from __future__ import annotations

from bench.comparisons.rows import bucket_cost, crowd, fan_out, http_publish, load, memory, neighbour, saturated, steady
from bench.comparisons.tables.document import RowTable

NSQD = RowTable(
    name="nsqd",
    title="In nsqd's place",
    claim="In nsqd's place, under the same load, our broker reaches every bound of the first table.",
    rows={
        row.name: row
        for row in (
            load.ROW,
            steady.ROW,
            saturated.ROW,
            saturated.APART,
            saturated.OVERFLOW,
            memory.ROW,
            crowd.ROW,
            fan_out.ROW,
            http_publish.ROW,
            bucket_cost.ROW,
            neighbour.ROW,
        )
    },
    sources=["bench/comparisons/rows"],
)
