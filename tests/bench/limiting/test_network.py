"""The network in virtual time does what it is told, and nothing else."""

from __future__ import annotations

from bench.limiting.network import Network

MS = 1_000_000


class Echo:
    """Sends what it is given; keeps what it receives."""

    def __init__(self) -> None:
        self.out: list[tuple[int, str]] = []
        self.received: list[tuple[int, str]] = []
        self.ticks: list[int] = []

    def receive(self, frame: str, at_ns: int) -> None:
        self.received.append((at_ns, frame))

    def tick(self, at_ns: int) -> None:
        self.ticks.append(at_ns)

    def outbox(self) -> list[tuple[int, str]]:
        out, self.out = self.out, []
        return out


def pair(network: Network, ahead_ns: int = 0) -> tuple[Echo, Echo]:
    one, two = Echo(), Echo()
    network.add(1, one)
    network.add(2, two, ahead_ns)
    return one, two


def say(network: Network, node: Echo, *words: str) -> None:
    node.out += [(2, word) for word in words]
    network.pump(1)


def test_a_frame_arrives_after_its_delay_by_the_receivers_clock():
    network = Network(lambda: 5 * MS)
    one, two = pair(network, ahead_ns=100 * MS)
    say(network, one, "a")
    network.run(5 * MS - 1)
    assert two.received == []
    network.run(5 * MS)
    assert two.received == [(105 * MS, "a")]


def test_frames_of_one_instant_keep_their_order():
    network = Network()
    one, two = pair(network)
    say(network, one, "a", "b", "c")
    network.run(0)
    assert [word for _, word in two.received] == ["a", "b", "c"]


def test_lost_frames_are_seen_as_sent_and_never_arrive():
    sent = []
    network = Network(loss=0.5, seed=1, sent=lambda _from, _to, frame: sent.append(frame))
    one, two = pair(network)
    say(network, one, *map(str, range(100)))
    network.run(0)
    assert len(sent) == 100
    assert 30 < len(two.received) < 70


def test_a_cut_loses_what_is_on_its_way_and_ends():
    network = Network(lambda: MS)
    one, two = pair(network)
    say(network, one, "a")
    network.cut([1], [2])
    network.run(MS)
    network.cut()
    say(network, one, "b")
    network.run(2 * MS)
    assert [word for _, word in two.received] == ["b"]


def test_a_stopped_node_receives_nothing_and_what_it_sent_arrives():
    network = Network(lambda: MS)
    one, two = pair(network)
    say(network, one, "a")
    network.stop(1)
    two.out.append((1, "b"))
    network.pump(2)
    network.run(MS)
    assert [word for _, word in two.received] == ["a"]
    assert one.received == []
    network.tick(1)
    assert one.ticks == []


def test_what_is_repeated_ends():
    network = Network()
    seen = []
    network.every(10, 5, 30, lambda: seen.append(network.now_ns))
    network.run(100)
    assert seen == [5, 15, 25]
