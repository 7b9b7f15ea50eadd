"""The mean of delays that depend on each other, with its interval, by batch means. Pure.

A run is cut into batches of equally many messages, each far longer than a bucket takes to fill or a queue to end. The
interval is Student's over their means (Law and Kelton, Simulation Modeling and Analysis, section 9.5.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student

BATCHES = 20  # of a run
COVERED = 0.95


@dataclass(frozen=True)
class Mean:
    """A mean and half of its ``COVERED`` interval, infinite for one batch alone. ``seen``: the part of the batches that
    are not 0; where it is small the interval says nothing of what is rare."""

    value: float
    half: float
    seen: float = 1.0

    def __str__(self) -> str:
        return f"{self.value:.3g} ± {self.half:.2g}"


def mean_of(runs: Sequence[npt.NDArray[np.int64]]) -> Mean:
    """Of all values of ``runs`` (each in order of time), of which there is at least one."""
    batches = _batches(runs)
    return Mean(_overall(runs), _half(batches), _seen(batches))


def controlled_mean_of(
    runs: Sequence[npt.NDArray[np.int64]], controls: Sequence[npt.NDArray[np.int64]], expected: float
) -> Mean:
    """Of all values of ``runs``, less the chance that they share with ``controls``, whose mean is known to be
    ``expected``: a control variate (Law and Kelton, section 11.4) with the coefficient 1."""
    batches = _batches(runs)
    value = expected + _overall(runs) - _overall(controls)
    return Mean(value, _half(batches - _batches(controls)), _seen(batches))


def _overall(runs: Sequence[npt.NDArray[np.int64]]) -> float:
    return float(np.concatenate(list(runs)).mean())


def _batches(runs: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.float64]:
    return np.array([part.mean() for run in runs for part in np.array_split(run, BATCHES) if len(part)])


def _seen(batches: npt.NDArray[np.float64]) -> float:
    return float(np.count_nonzero(batches)) / len(batches)


def _half(batches: npt.NDArray[np.float64]) -> float:
    if len(batches) < 2:
        return math.inf
    widest = float(student.ppf((1 + COVERED) / 2, len(batches) - 1))
    return widest * float(np.std(batches, ddof=1)) / math.sqrt(len(batches))
