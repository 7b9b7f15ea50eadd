"""``srtm bench mqtt``: our broker by its MQTT port, beside Mosquitto, the floor, and itself over a link."""

from __future__ import annotations

from bench.comparisons.mqtt import cost, fan_out, idle, links, load, retained, subscriptions
from bench.comparisons.tables.document import RowTable

MQTT = RowTable(
    name="mqtt",
    title="In Mosquitto's place",
    claim="By its MQTT port, under the same load, our broker reaches every bound of the first table.",
    rows={
        row.name: row
        for row in (
            load.QOS_0,
            load.QOS_1,
            load.DURABLE,
            cost.ROW,
            idle.ROW,
            fan_out.ROW,
            subscriptions.ROW,
            retained.ROW,
            links.ROW,
        )
    },
    sources=["bench/comparisons/rows", "bench/comparisons/mqtt"],
)
