"""The load on Envoy's rate limit service is what it means to be, and what a service answers to it is measured."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from bench.limit_cluster.envoy_client import SUBJECTS, request
from bench.limit_cluster.envoy_service import measure
from limiting.envoy.rate_limits import Descriptor, RateLimitRequest, read_request
from srtm.errors import Unavailable


def test_each_subject_is_another_descriptor() -> None:
    asked = {read_request(request(subject)) for subject in range(SUBJECTS)}
    assert len(asked) == SUBJECTS
    assert RateLimitRequest("edge", (Descriptor((("remote_address", "10.0.1.2"),)),)) in asked


async def test_without_the_stock_client_it_says_what_brings_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(Unavailable, match="pip install grpcio"):
        await measure(tmp_path, 1.0, [50])


@pytest.mark.slow
async def test_the_stock_client_measures_a_real_service(tmp_path: Path) -> None:
    most, steady = await measure(tmp_path / "run", 1.0, [0, 50])
    assert most.wrong == steady.wrong == 0
    assert most.per_second > 10
    assert steady.per_second == 50
    for found in (most, steady):
        assert 0 < found.p50_ms <= found.p99_ms
        assert found.cpu_us > 0
