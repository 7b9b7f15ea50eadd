"""What the kernel is asked for."""

from bench.testbed.net.layout import Link
from bench.testbed.net.shaping import NETEM, RELAY, VETH, carried_by, netem


def test_a_plain_link_is_a_cable():
    assert carried_by(Link(), has_netem=False) == VETH


def test_a_late_link_goes_through_netem_where_there_is_one_and_else_through_the_relay():
    late = Link(delay_ms=5.0)
    assert (carried_by(late, has_netem=True), carried_by(late, has_netem=False)) == (NETEM, RELAY)


def test_netem_draws_around_the_middle_of_delay_and_delay_with_jitter():
    asked = netem(Link(delay_ms=5.0, jitter_ms=2.0, loss=0.01))
    assert (asked["delay"], asked["jitter"], asked["loss"]) == (6_000, 1_000, 1.0)
