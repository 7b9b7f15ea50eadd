"""A day of demand, made from a map of detectors: which broker gets how much at which hour, and when messages come.

Only the map is real (``bench/data``: the loop detectors of Los Angeles). That a detector has a morning and an evening
peak, that the east has more of the morning and the west of the evening, and that those far from the middle see the
morning earlier and the evening later is what commuters do; how much is chosen here, and drawn for each detector with a
seed. Detectors stay with the broker of their quarter of the map, from west to east: where the split has most to follow.
(A placement by SRTM would spread them.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bench.data.sensors import Detector
from bench.harness.cluster_runs.recovery import SECOND_NS, Ints

Floats = npt.NDArray[np.float64]

HOURS = 24
PEAK = 10_000.0  # msg/s of all brokers
CELLS = 60  # an hour, in which rates stand still
_NIGHT = 0.15  # of a detector's peaks, at least
_MORNING_H, _EVENING_H = 7.5, 17.5
_WIDTH_H = 1.2  # standard deviation of a peak
_TILT = 2.0  # octaves by which the peaks of the outermost detectors differ from the middle's
_EARLIER_H = 1.0  # the morning of the outermost; as much later their evening
_OCTAVES, _DRAWN_H = 0.5, 0.4  # standard deviations of what is drawn for each detector: height, hour


def demand(detectors: list[Detector], brokers: int, hours: int, peak: float, seed: int) -> Floats:
    """Msg/s of each broker (rows) in each minute from midnight on; ``peak``: of the whole day and all brokers."""
    minute_h = np.arange(HOURS * CELLS) / CELLS
    rates = _profiles(detectors, minute_h, np.random.default_rng([seed, 0]))
    west_to_east = np.argsort([detector.longitude for detector in detectors], kind="stable")
    each = np.array([rates[quarter].sum(axis=0) for quarter in np.array_split(west_to_east, brokers)])
    scaled: Floats = each * (peak / each.sum(axis=0).max())
    return scaled[:, : hours * CELLS]


def arrivals(rates: Floats, seconds: float, seed: int) -> list[Ints]:
    """Poisson, of each broker, in order of time, ns; an hour of ``rates`` played in ``seconds``."""
    cell_s = seconds / CELLS
    rng = np.random.default_rng([seed, 1])
    found = []
    for row in rates:
        counts = rng.poisson(row * cell_s)
        cell = np.repeat(np.arange(len(row)), counts)
        instants_s = (cell + rng.uniform(size=len(cell))) * cell_s
        found.append(np.sort(instants_s * SECOND_NS).astype(np.int64))
    return found


def _profiles(detectors: list[Detector], hour: Floats, rng: np.random.Generator) -> Floats:
    """Of each detector (rows) at each ``hour``, in no unit."""
    longitude = np.array([detector.longitude for detector in detectors])
    latitude = np.array([detector.latitude for detector in detectors])
    east = _to_one(longitude - np.median(longitude))
    apart = np.abs(_to_one(np.hypot(longitude - np.median(longitude), latitude - np.median(latitude))))
    peaks = [(_MORNING_H, east, -apart), (_EVENING_H, -east, apart)]
    total = np.full((len(detectors), len(hour)), _NIGHT)
    for peak_h, side, later in peaks:
        height = 2 ** (_TILT * side + rng.normal(0, _OCTAVES, len(detectors)))
        at_h = peak_h + _EARLIER_H * later + rng.normal(0, _DRAWN_H, len(detectors))
        off_h = (hour - at_h[:, None] + HOURS / 2) % HOURS - HOURS / 2
        total += height[:, None] * np.exp(-0.5 * (off_h / _WIDTH_H) ** 2)
    return total


def _to_one(values: Floats) -> Floats:
    """Scaled so that the largest size is 1."""
    scaled: Floats = values / np.abs(values).max()
    return scaled
