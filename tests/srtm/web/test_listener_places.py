"""No address takes the places of all others."""

from __future__ import annotations

import resource
from contextlib import ExitStack

import pytest

from srtm.web.listener_places import Places


def test_one_address_leaves_an_eighth_to_the_others() -> None:
    places = Places(16)
    with ExitStack() as open_:
        for _ in range(14):
            assert open_.enter_context(places.taken("192.0.2.1")) is None
        with places.taken("192.0.2.1") as refusal:
            assert refusal == "too many connections of 192.0.2.1: there may be 14"
        with places.taken("::ffff:192.0.2.1") as refusal:
            assert refusal == "too many connections of ::ffff:192.0.2.1: there may be 14"
        for host in ("192.0.2.2", None):
            assert open_.enter_context(places.taken(host)) is None
        with places.taken("192.0.2.3") as refusal:
            assert refusal == "too many connections: there may be 16"
        assert places.connections == 16
    assert places.connections == 0
    with places.taken("192.0.2.1") as refusal:
        assert refusal is None


def test_of_ipv6_the_network_counts() -> None:
    places = Places(8)
    with ExitStack() as open_:
        for number in range(7):
            assert open_.enter_context(places.taken(f"2001:db8::{number}")) is None
        with places.taken("2001:db8::ffff:1") as refusal:
            assert refusal is not None
        with places.taken("2001:db8:0:1::1") as refusal:
            assert refusal is None


@pytest.mark.parametrize(("soft", "most"), [(1_024, 896), (64, 1)])
def test_there_are_as_many_places_as_descriptors(monkeypatch: pytest.MonkeyPatch, soft: int, most: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    with ExitStack() as open_:
        places = Places.by_descriptors()
        for _ in range(most):
            assert open_.enter_context(places.taken(None)) is None
        with places.taken(None) as refusal:
            assert refusal == f"too many connections: there may be {most}"
