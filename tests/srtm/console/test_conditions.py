"""What a broker's figures are to be taken with, in words."""

import msgspec
import pytest

from srtm.console.conditions import conditions, remarks
from srtm.control import Throttling


@pytest.mark.parametrize(
    ("lab_ns", "throttling", "said"),
    [
        (0, None, []),
        (0, Throttling(quota_cores=2.0), []),
        (0, Throttling(throttled_share=0.004, steal_share=0.004), []),
        (18_500, None, ["laboratory: 18.5 us a message"]),
        (
            0,
            Throttling(quota_cores=1.5, throttled_share=0.12, steal_share=0.03),
            ["throttled by a quota of 1.5 cores in 12% of its periods", "steal 3%"],
        ),
        (0, Throttling(throttled_share=1.0), ["throttled by a quota in 100% of its periods"]),
    ],
)
def test_what_matters_is_said_and_noise_is_not(lab_ns, throttling, said):
    assert remarks(lab_ns, throttling) == said


def test_a_view_of_a_distributor_says_what_it_knows_or_nothing():
    throttling = Throttling(quota_cores=1.5, steal_share=0.5)
    view = {"lab_service_time_ns": 5, "throttling": msgspec.to_builtins(throttling)}
    assert conditions(view) == (5, throttling)
    assert conditions({}) == (0, None)
    assert conditions({"lab_service_time_ns": 0, "throttling": None}) == (0, None)
