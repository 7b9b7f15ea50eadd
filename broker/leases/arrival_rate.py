"""The rate of arrivals of one topic here, from the engine's bins, told apart by the engine's detector of change."""

from __future__ import annotations

from adaptor.observations import BIN_S, Change
from adaptor.policies.rate_estimate import RateEstimate
from srtm._native import ChangeDetector


class ArrivalRate:
    """``add`` each bin once."""

    def __init__(self, dispersion: float = 1.0) -> None:
        self._estimate = RateEstimate(dispersion)
        self._detector = ChangeDetector()

    @property
    def rate(self) -> float:
        """Msg/s, in the last 5 s or since the last change."""
        return self._estimate.rate

    @property
    def dispersion(self) -> float:
        """I: the variance of counts by their mean; 1 for Poisson traffic."""
        return self._estimate.dispersion

    def add(self, arrivals: int) -> None:
        """Take the next bin."""
        self._estimate.add(arrivals)
        change = self._detector.note(arrivals)
        if change is not None:
            messages, bins = change
            self._estimate.begin_anew(Change(messages, bins * BIN_S, mixed=0, known=bins))
