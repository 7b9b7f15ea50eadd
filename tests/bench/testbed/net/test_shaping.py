"""What the kernel is asked for."""

from bench.testbed.net.layout import Link
from bench.testbed.net.shaping import NETEM, RELAY, VETH, carried_by, qdiscs


def test_a_plain_link_is_a_cable_and_asks_for_nothing():
    assert carried_by(Link(), has_netem=False) == VETH
    assert qdiscs(Link(), has_netem=True) == []


def test_a_late_link_goes_through_netem_where_there_is_one_and_else_through_the_relay():
    late = Link(delay_ms=5.0)
    assert (carried_by(late, has_netem=True), carried_by(late, has_netem=False)) == (NETEM, RELAY)
    assert [one["kind"] for one in qdiscs(late, has_netem=True)] == ["netem"]
    assert qdiscs(late, has_netem=False) == []


def test_netem_draws_around_the_middle_of_delay_and_delay_with_jitter():
    [asked] = qdiscs(Link(delay_ms=5.0, jitter_ms=2.0, loss=0.01), has_netem=True)
    assert (asked["delay"], asked["jitter"], asked["loss"]) == (6_000, 1_000, 1.0)


def test_a_rate_is_in_bytes_a_second_and_its_bucket_holds_a_few_packets():
    [asked] = qdiscs(Link(rate_mbit=8.0), has_netem=False)
    assert (asked["kind"], asked["rate"], asked["burst"]) == ("tbf", 1_000_000, 16_384)
    [fast] = qdiscs(Link(rate_mbit=10_000.0), has_netem=False)
    assert fast["burst"] == 1_250_000


def test_with_netem_the_rate_is_inside_it():
    asked = qdiscs(Link(delay_ms=1.0, rate_mbit=8.0), has_netem=True)
    assert [(one["kind"], one.get("parent")) for one in asked] == [("netem", None), ("tbf", "1:1")]
