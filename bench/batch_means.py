"""The mean of delays that depend on each other, and how far off it may be: by the means of batches, which hardly do.

Pure. A run is cut into batches of equally many messages, each far longer than a bucket takes to fill or a queue to end;
the interval is Student's over their means (Law and Kelton, Simulation Modeling and Analysis, section 9.5.3).
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
    """Of what ``value`` is drawn from, ``value`` - ``half`` to ``value`` + ``half`` with a probability of
    ``COVERED``; ``half`` is infinite where there is one batch alone. ``seen``: the part of the batches that are not 0;
    where few are, what is rare hardly came, and the interval knows nothing of it."""

    value: float
    half: float
    seen: float = 1.0

    def __str__(self) -> str:
        return f"{self.value:.3g} ± {self.half:.2g}"


def mean_of(runs: Sequence[npt.NDArray[np.int64]]) -> Mean:
    """Of all values of ``runs`` (each in order of time), of which there is at least one."""
    batches = [part.mean() for run in runs for part in np.array_split(run, BATCHES) if len(part)]
    value = float(np.concatenate(list(runs)).mean())
    seen = float(np.count_nonzero(batches)) / len(batches)
    if len(batches) < 2:
        return Mean(value, math.inf, seen)
    widest = float(student.ppf((1 + COVERED) / 2, len(batches) - 1))
    return Mean(value, widest * float(np.std(batches, ddof=1)) / math.sqrt(len(batches)), seen)
