"""Durations of contracts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.contracts.duration import duration_ns, duration_text


@given(st.integers(0, 10**15))
def test_a_text_gives_its_duration_again(duration: int) -> None:
    assert duration_ns(duration_text(duration)) == duration


def test_days_stand_before_other_units() -> None:
    assert duration_ns("1d12h") == 36 * 3600 * 10**9
    assert duration_text(86_400 * 10**9) == "1d"
    with pytest.raises(ValueError, match="duration"):
        duration_ns("12h1d")
