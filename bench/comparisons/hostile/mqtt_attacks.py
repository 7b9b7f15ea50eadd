"""What a hostile MQTT client does to a broker: as in ``attacks``, over the MQTT port.

Names begin with ``hostile/``, which nobody of the calm flow has subscribed to.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import count, islice

from bench.comparisons.hostile.flood import (
    CHUNK,
    FLOODS,
    Attack,
    Flood,
    Steps,
    Target,
    connect,
    endless,
    held_open,
)
from bench.harness.load.mqtt_client import (
    connect_packet,
    connect_packet_5,
    packet,
    publish_packet,
    subscribe_packet,
    text,
)

NAME = b"hostile/name"
WILLS = 10_000
READERS = 20
PUBREL, UNSUBSCRIBE, DISCONNECT = 6, 10, 14
MOST_QOS_2 = 65_535
USER_PROPERTY = b"\x26"
TOPIC_ALIAS = b"\x23"
PROPERTY_BYTES = 5_000_000
LONGEST = 1_000_000  # bytes of properties that the broker takes in a packet
ALIASES = 10  # as many as the broker lets a client have
RETAINED = 110_000  # names: more than there may be
RETAINED_BYTES = 140_000_000  # more than an eighth of the memory
LARGE_WILL = 60_000  # bytes; 4,000 of them are more than an eighth of the memory
MEMBERS, GROUPS = 10, 100  # of each member
NUMBERS = count()  # of clients, each with an id of its own


def _client(target: Target, hello: bytes = b"", *, five: bool = False, clean: bool = True) -> socket.socket:
    client_id = b"hostile-%d" % next(NUMBERS)
    greeting = connect_packet_5(client_id) if five else connect_packet(client_id, clean=clean)
    return connect(target.mqtt, greeting + hello)


def _readers(target: Target, qos: int) -> list[socket.socket]:
    """Subscribers of all that attackers publish."""
    readers = [_client(target, subscribe_packet(1, [b"hostile/#"], qos=qos)) for _ in range(READERS)]
    for reader in readers:
        reader.setblocking(False)
    return readers


def _read(readers: Iterable[socket.socket]) -> None:
    """What is there; who was cut off has nothing more."""
    for reader in readers:
        with suppress(OSError):
            reader.recv(CHUNK)


def _variable(number: int) -> bytes:
    """A length as MQTT writes it: what a packet has behind its first byte."""
    whole = packet(0, bytes(number))
    return whole[1 : len(whole) - number]


def release(number: int) -> bytes:
    """The PUBREL of a PUBLISH of QoS 2."""
    return packet(PUBREL, number.to_bytes(2, "big"), flags=2)


def halves(target: Target) -> Steps:
    """Half PUBLISHes of 40 kB on thousands of connections, held open; those that are closed come again."""
    half = publish_packet(NAME, b"x" * 40_000, qos=1)[:20_000]
    yield from held_open(lambda: _client(target, half))


def aliases(target: Target) -> Steps:
    """Each PUBLISH gives a Topic Alias another long name."""
    data = b"".join(
        publish_packet(
            b"hostile/%d/" % number + b"x" * 1_000, b"x", properties=b"\x03" + TOPIC_ALIAS + bytes([0, alias])
        )
        for number in range(100)
        for alias in range(1, ALIASES + 1)
    )
    yield from endless(Flood(lambda: _client(target, five=True), data, FLOODS))


def unreleased(target: Target) -> Steps:
    """PUBLISHes of QoS 2 whose PUBREL never comes; who is refused begins anew."""
    data = b"".join(publish_packet(NAME, b"x" * 100, qos=2, number=number) for number in range(1, MOST_QOS_2 + 1))
    yield from endless(Flood(lambda: _client(target), data, FLOODS))


def incomplete(target: Target) -> Steps:
    """Subscribers of QoS 2 read everything and answer nothing of what floods them."""
    readers = _readers(target, 2)
    data = b"".join(publish_packet(NAME, b"x" * 100, qos=2, number=n) + release(n) for n in range(1, 501))
    flood = Flood(lambda: _client(target), data, 1)
    while True:
        yield flood.step()
        _read(readers)


def subscribes(target: Target) -> Steps:
    """A hundred patterns are subscribed to and given up, over and over."""
    patterns = [b"hostile/%d/+/#" % number for number in range(100)]
    gone = packet(UNSUBSCRIBE, b"\0\2" + b"".join(map(text, patterns)), flags=2)
    yield from endless(Flood(lambda: _client(target), (subscribe_packet(1, patterns) + gone) * 10, FLOODS))


def wills(target: Target) -> Steps:
    """Ten thousand clients die at once, each with a will that twenty subscribers want; then they come again."""
    readers = _readers(target, 0)
    while True:
        dying = []
        for number in range(WILLS):
            will = (b"hostile/%d" % number, b"x" * 100)
            with suppress(OSError):
                dying.append(connect(target.mqtt, connect_packet(b"dying-%d" % number, will=will)))
            if number % 100 == 0:
                yield 100
        for one in dying:
            with suppress(OSError):
                one.recv(CHUNK)
        for one in dying:
            one.close()
        _read(readers)
        yield len(dying)


def properties(target: Target) -> Steps:
    """PUBLISHes with as many user properties as a packet may have, and with 5 MB of them."""
    pair = USER_PROPERTY + text(b"k") + text(b"v")
    floods = []
    for size in (LONGEST, PROPERTY_BYTES):
        many = pair * (size // len(pair))
        data = publish_packet(NAME, b"x", properties=_variable(len(many)) + many)
        floods.append(Flood(lambda: _client(target, five=True), data, 2))
    while True:
        yield sum(flood.step() for flood in floods)


def slow_readers(target: Target) -> Steps:
    """Twenty subscribers of QoS 0 and twenty of QoS 1 read nothing of what floods them."""
    held = [*_readers(target, 0), *_readers(target, 1)]
    flood = Flood(lambda: _client(target), publish_packet(NAME, b"x" * 10_000, qos=1) * 20, 1)
    while held:
        yield flood.step()


def retained(target: Target) -> Steps:
    """More retained messages than there may be, by number and by bytes; subscribers of all of them come and go."""
    many = b"".join(publish_packet(b"hostile/%d" % number, b"x" * 100, retain=True) for number in range(RETAINED))
    large = b"".join(
        publish_packet(b"hostile/large/%d" % number, b"x" * 100_000, retain=True)
        for number in range(RETAINED_BYTES // 100_000)
    )
    floods = [Flood(lambda: _client(target), data, 2) for data in (many, large)]
    while True:
        yield sum(flood.step() for flood in floods)
        with suppress(OSError), _client(target, subscribe_packet(1, [b"hostile/#"])) as reader:
            reader.recv(CHUNK)


def large_wills(target: Target) -> Steps:
    """Thousands of clients with wills of 60 kB, more than may be kept; they die, and come again."""

    def mortal() -> socket.socket:
        will = (NAME, b"x" * LARGE_WILL)
        return connect(target.mqtt, connect_packet(b"mortal-%d" % next(NUMBERS), will=will))

    yield from held_open(mortal)


def sessions(target: Target) -> Steps:
    """Ever new clients leave sessions that are kept; twenty of these are owed what floods them."""
    leave = packet(DISCONNECT, b"")
    owed = subscribe_packet(1, [b"hostile/#"], qos=1) + leave
    for _ in range(READERS):
        _client(target, owed, clean=False).close()
    flood = Flood(lambda: _client(target), publish_packet(NAME, b"x" * 1_000, qos=1) * 100, 1)
    while True:
        left = b"hostile-%d/left" % next(NUMBERS)
        with suppress(OSError), _client(target, subscribe_packet(1, [left], qos=1) + leave, clean=False) as one:
            one.recv(CHUNK)
        yield 1 + flood.step()


def groups(target: Target) -> Steps:
    """A thousand groups, whose members read nothing, get what floods them; others are joined and left."""

    def names(kind: bytes) -> list[bytes]:
        return [b"$share/%b-%d/hostile/#" % (kind, number) for number in islice(NUMBERS, GROUPS)]

    held = [_client(target, subscribe_packet(1, names(b"held"), qos=1)) for _ in range(MEMBERS)]
    passing = names(b"passing")
    gone = packet(UNSUBSCRIBE, b"\0\2" + b"".join(map(text, passing)), flags=2)
    floods = [
        Flood(lambda: _client(target), publish_packet(NAME, b"x" * 1_000, qos=1) * 20, 1),
        Flood(lambda: _client(target), subscribe_packet(1, passing, qos=1) + gone, 2),
    ]
    while held:
        yield sum(flood.step() for flood in floods)


ATTACKS: Mapping[str, Attack] = {
    "mqtt-halves": halves,
    "mqtt-aliases": aliases,
    "mqtt-unreleased": unreleased,
    "mqtt-incomplete": incomplete,
    "mqtt-subscribes": subscribes,
    "mqtt-wills": wills,
    "mqtt-properties": properties,
    "mqtt-slow-readers": slow_readers,
    "mqtt-retained": retained,
    "mqtt-large-wills": large_wills,
    "mqtt-sessions": sessions,
    "mqtt-groups": groups,
}
