"""Frames between the ends of late and lossy links, over pipes in place of devices."""

import os

import pytest

from bench.harness.machine.lossy_link import CUT, GOOD, Quality
from bench.testbed.net.frame_relay import Cable, Order, Relay, ways

MS = 1_000_000


def cable(name: str = "broker1", **quality: float) -> Cable:
    return Cable(near="n", near_device=name, far="f", far_device=name, quality=Quality(**quality))


@pytest.fixture
def ends():
    """Two ends that read what is written to their far side: as devices do."""
    made = [os.pipe() for _ in range(2)]
    for reading, _ in made:
        os.set_blocking(reading, False)
    yield made
    for pair in made:
        for descriptor in pair:
            os.close(descriptor)


def relay_of(ends, quality: Quality) -> Relay:
    (near, _), (_, far) = ends
    [(there, _)] = ways(Order(cables=[Cable(near="", near_device="", far="", far_device="", quality=quality)]))
    return Relay({near: (far, there)})


def test_a_frame_passes_when_its_time_has_come_and_not_before(ends):
    relay = relay_of(ends, Quality(delay_ms=3.0))
    os.write(ends[0][1], b"frame")
    relay.take(ends[0][0], lambda: 0)
    assert relay.next_ns == 3 * MS
    relay.pass_on(3 * MS - 1)
    with pytest.raises(BlockingIOError):
        os.read(ends[1][0], 10)
    relay.pass_on(3 * MS)
    assert os.read(ends[1][0], 10) == b"frame"
    assert relay.next_ns is None


@pytest.mark.parametrize(("quality", "passes"), [(GOOD, True), (CUT, False)])
def test_a_lost_frame_leaves_nothing_to_wait_for(ends, quality, passes):
    relay = relay_of(ends, quality)
    os.write(ends[0][1], b"frame")
    relay.take(ends[0][0], lambda: 7)
    assert (relay.next_ns is not None) == passes


def test_each_way_of_each_link_has_a_chance_of_its_own_and_a_seed_repeats_it():
    def lost(order: Order) -> list[list[bool]]:
        found = []
        for way in (way for pair in ways(order) for way in pair):
            for number in range(64):
                way.send(bytes([number]), 0)
            arrived = way.arrived(0)
            found.append([bytes([number]) in arrived for number in range(64)])
        return found

    order = Order(cables=[cable("broker1", loss=0.5), cable("broker2", loss=0.5)], seed=3)
    found = lost(order)
    assert len({tuple(one) for one in found}) == 4
    assert lost(order) == found
