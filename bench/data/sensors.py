"""The demo's deployment: the highway loop detectors of Los Angeles (METR-LA), and the topic file made of them.

Sensors that stand close together see the same traffic and report it at the same moment: the correlation groups of the
paper (section 4.2). Groups are clusters of the map: great-circle distances, average linkage, cut at 2 km. Nothing here
is random; ``python -m bench.data.sensors`` writes again what lies in ``bench/data``, and a test compares.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from srtm.analysis.places import near_groups

DATA = Path(__file__).parent
DETECTORS_CSV = DATA / "metr-la-sensors.csv"
TOPIC_TOML = DATA / "la-highways.toml"
PUBLISHERS_CSV = DATA / "la-highways.csv"

CUT_KM = 2.0  # about the distance between two interchanges
RATE_PER_S = 10.0  # msg/s of one detector
HEADROOM = 1.1  # r over the publishers' rates, as in the paper's experiments


@dataclass(frozen=True)
class Detector:
    sensor_id: str
    latitude: float  # degrees
    longitude: float


def read_detectors() -> list[Detector]:
    with DETECTORS_CSV.open(newline="") as file:
        return [Detector(r["sensor_id"], float(r["latitude"]), float(r["longitude"])) for r in csv.DictReader(file)]


def correlation_groups(detectors: list[Detector]) -> list[int]:
    """The group of each detector, numbered from 0 in order of first appearance."""
    return near_groups([(detector.latitude, detector.longitude) for detector in detectors], CUT_KM)


def publisher_id(detector: Detector) -> str:
    return f"detector-{detector.sensor_id}"


def publishers_csv(detectors: list[Detector]) -> str:
    """The publishers as a topic file names them: ``id,rate,correlation_group,latitude,longitude``."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["id", "rate", "correlation_group", "latitude", "longitude"])
    for detector, group in zip(detectors, correlation_groups(detectors), strict=True):
        place = (f"{detector.latitude}", f"{detector.longitude}")
        table.writerow([publisher_id(detector), f"{RATE_PER_S:g}", f"la-{group:02d}", *place])
    return text.getvalue()


def topic_toml(detectors: list[Detector]) -> str:
    load, groups = RATE_PER_S * len(detectors), len(set(correlation_groups(detectors)))
    return f"""\
# Written by `python -m bench.data.sensors`: the {len(detectors)} detectors of metr-la-sensors.csv, {groups} groups.
name = "la-highways"
rate = {HEADROOM * load:.0f}              # r, msg/s: {HEADROOM} x {load:.0f}
burst = "auto"           # b: the smallest that surely keeps the promise in 95 of 100 minutes
placement = "srtm"

[slo]
percentile = 99
latency_ms = 5.0

[[publishers]]
csv = "{PUBLISHERS_CSV.name}"
process = "poisson"      # detectors of one group fire together
"""


def main() -> None:
    detectors = read_detectors()
    PUBLISHERS_CSV.write_text(publishers_csv(detectors))
    TOPIC_TOML.write_text(topic_toml(detectors))


if __name__ == "__main__":
    main()
