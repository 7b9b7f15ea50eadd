"""Columns of numbers, one entry a publisher or a broker, and the markers in them. Pure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NOWHERE = -1  # in a placement: no broker had room for this publisher
ALONE = -1  # in a column of groups: this publisher belongs to no correlation group
ROUNDING = 1e-6  # msg/s: sums of rates differ by less than this only because floats are rounded
