"""The blocking MQTT client of set-ups: bytes as the standard has them, and packets however they are cut."""

from __future__ import annotations

import socket

import pytest

from bench.harness.load.mqtt_client import (
    PINGRESP,
    SUBACK,
    Client,
    connect_packet,
    connect_packet_5,
    first_packet,
    packet,
    publish_packet,
    subscribe_packet,
)


def test_packets_are_as_the_standard_has_them() -> None:
    assert connect_packet(b"c") == b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01c"
    assert (
        connect_packet(b"c", clean=False, will=(b"w", b"x")) == b"\x10\x13\0\x04MQTT\x04\x04\0\0\0\x01c\0\x01w\0\x01x"
    )
    assert connect_packet_5(b"c") == b"\x10\x0e\0\x04MQTT\x05\x02\0\0\0\0\x01c"
    assert subscribe_packet(258, [b"a", b"#"], qos=1) == b"\x82\x0a\x01\x02\0\x01a\x01\0\x01#\x01"
    assert publish_packet(b"a", b"x", retain=True) == b"\x31\x04\0\x01ax"
    assert publish_packet(b"a", b"x", qos=2, number=3, properties=b"\0") == b"\x34\x07\0\x01a\0\x03\0x"


@pytest.mark.parametrize("size", [0, 127, 128, 16_383, 16_384, 2_097_152])
def test_a_packet_is_found_only_when_it_is_whole(size: int) -> None:
    whole = packet(3, b"x" * size, flags=1)
    assert first_packet(b"??" + whole + b"more", 2) == (0x31, b"x" * size, len(whole))
    assert first_packet(whole[:-1]) is None


def test_a_client_reads_what_it_waits_for_however_it_is_cut_and_refuses_anything_else() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        near = socket.create_connection((host, port))
        far, _ = listener.accept()
        with Client(near) as client, far:
            far.sendall(packet(PINGRESP, b"") + packet(SUBACK, b"\0\1\0"))
            client.ping()
            assert client.expect(SUBACK) == b"\0\1\0"
            far.sendall(b"abc" + packet(SUBACK, b""))
            client.discard(3)
            with pytest.raises(ConnectionError, match="type 9 instead of 13"):
                client.expect(PINGRESP)
            far.shutdown(socket.SHUT_WR)
            with pytest.raises(ConnectionError, match="ended the connection"):
                client.next()
