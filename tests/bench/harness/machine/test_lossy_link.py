"""A bad link between two namespaces: what becomes of packets."""

import random

from bench.harness.machine.lossy_link import CUT, Quality, Way

MS = 1_000_000


def way(**quality: float) -> Way:
    return Way(random.Random(1), Quality(**quality))


def test_a_good_link_passes_packets_at_once_and_in_order():
    link = way()
    for number in range(20):
        link.send(bytes([number]), 5)
    assert link.arrived(5) == [bytes([number]) for number in range(20)]
    assert link.next_ns is None


def test_a_cut_link_passes_nothing():
    link = Way(random.Random(1), CUT)
    link.send(b"x", 0)
    assert link.arrived(10**12) == []


def test_a_packet_arrives_after_its_delay_and_not_before():
    link = way(delay_ms=3)
    link.send(b"x", 0)
    assert (link.next_ns, link.arrived(3 * MS - 1), link.arrived(3 * MS)) == (3 * MS, [], [b"x"])


def test_a_lossy_link_with_jitter_loses_repeats_and_reorders():
    link = way(loss=0.2, twice=0.2, jitter_ms=50)
    sent = [bytes([number]) for number in range(200)]
    for packet in sent:
        link.send(packet, 0)
    arrived = link.arrived(50 * MS)
    assert set(arrived) < set(sent)
    assert len(arrived) > len(set(arrived))
    assert arrived != sorted(arrived)
