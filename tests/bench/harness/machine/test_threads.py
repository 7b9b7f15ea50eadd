"""How many files may be open."""

from __future__ import annotations

import pytest

from bench.harness.machine.threads import allow_descriptors
from srtm.errors import Unavailable


def test_too_few_descriptors_are_refused_with_the_number_needed() -> None:
    with pytest.raises(Unavailable, match="99999999 open files are needed"):
        allow_descriptors(99_999_999)
