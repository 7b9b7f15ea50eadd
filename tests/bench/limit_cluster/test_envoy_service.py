"""The bench of Envoy's rate limit service asks what it means to ask, and judges by what must be reached."""

from __future__ import annotations

import pytest

from bench.limit_cluster.envoy_client import SUBJECTS, request
from bench.limit_cluster.envoy_service import Measured, measure
from limiting.envoy.rate_limits import Descriptor, RateLimitRequest, read_request


def test_each_subject_is_another_descriptor() -> None:
    asked = {read_request(request(subject)) for subject in range(SUBJECTS)}
    assert len(asked) == SUBJECTS
    assert RateLimitRequest("edge", (Descriptor((("remote_address", "10.0.1.2"),)),)) in asked


def test_what_falls_short_is_said() -> None:
    good = Measured(calls_a_second=3_000, rate=3_000, p50_ms=1, p99_ms=5, cpu_us=200, wrong=0)
    assert all(check.kept for check in good.checks())
    for change in ({"calls_a_second": 2_999}, {"p99_ms": 5.1}, {"wrong": 1}):
        assert sum(not check.kept for check in good._replace(**change).checks()) == 1


@pytest.mark.slow
def test_the_stock_client_measures_a_real_service() -> None:
    found = measure(1.0, 50.0)
    assert found.wrong == 0
    assert found.calls_a_second > 10
    assert 0 < found.p50_ms <= found.p99_ms
