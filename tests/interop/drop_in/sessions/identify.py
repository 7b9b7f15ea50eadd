"""IDENTIFY: every field with every kind of value, the limits, what is answered."""

from __future__ import annotations

from tests.interop.drop_in.client import sized
from tests.interop.drop_in.session import Play, Sessions, identification

SESSIONS = Sessions()
_TEXTS = ("client_id", "hostname", "user_agent", "short_id", "long_id")
_SWITCHES = ("feature_negotiation", "tls_v1", "snappy", "deflate")
_NUMBERS = (
    "heartbeat_interval", "output_buffer_size", "output_buffer_timeout", "sample_rate", "msg_timeout", "deflate_level"
)  # fmt: skip
_VALUES = (
    '"text"', '""', "true", "1", "1.0", "1.5", "1e3", "-2", "null", "[]", "{}", "9223372036854775807",
    "9223372036854775808", "99999999999999999999999",
)  # fmt: skip
_BODIES = {
    "empty object": b"{}",
    "array": b"[]",
    "null": b"null",
    "text": b'"x"',
    "number": b"3",
    "true": b"true",
    "not JSON": b"nonsense",
    "cut": b'{"client_id": "x"',
    "trailing comma": b'{"client_id": "x",}',
    "trailing text": b"{} x",
    "spaces around": b"  {}  \n",
    "space": b" ",
    "zero byte": b"\0",
    "not UTF-8": b'{"client_id": "\xff"}',
    "key twice": b'{"msg_timeout": 1, "msg_timeout": 2000}',
    "upper case key": b'{"MSG_TIMEOUT": 1}',
    "unknown key": b'{"colour": {"red": [1, 2.5, null]}}',
    "escapes": b'{"client_id": "\\u00e9\\n"}',
    "byte order mark": b"\xef\xbb\xbf{}",
    "single quotes": b"{'client_id': 'x'}",
    "NaN": b'{"msg_timeout": NaN}',
    "leading zero": b'{"msg_timeout": 01000}',
    "deep": b'{"x": ' + b"[" * 200 + b"]" * 200 + b"}",
}


def _raw(body: bytes) -> bytes:
    return b"IDENTIFY\n" + sized(body)


@SESSIONS.add("IDENTIFY: bodies")
async def bodies(play: Play) -> None:
    await play.each({label: _raw(body) for label, body in _BODIES.items()})
    await play.each(
        {
            "empty": _raw(b""),
            "negative size": b"IDENTIFY\n\xff\xff\xff\xff",
            "too big": b"IDENTIFY\n" + ((5 << 20) + 1).to_bytes(4, "big"),
            "with a word": b"IDENTIFY now\n" + sized(b"{}"),
            "twice": _raw(b"{}") + _raw(b"{}"),
            "twice with features": identification(feature_negotiation=True) * 2,
        }
    )
    await play.once("no size", b"IDENTIFY\n", last=b"")
    await play.once("cut", _raw(b'{"client_id": "x"}')[:-1], last=b"")


@SESSIONS.add("IDENTIFY: wrong types")
async def types(play: Play) -> None:
    for name in (*_TEXTS, *_SWITCHES, *_NUMBERS):
        for value in _VALUES:
            await play.once(f"{name} {value}", _raw(f'{{"{name}": {value}}}'.encode()))


@SESSIONS.add("IDENTIFY: limits")
async def limits(play: Play) -> None:
    numbers = {
        "heartbeat_interval": (-2, -1, 0, 1, 999, 1000, 60000, 60001),
        "output_buffer_size": (-2, -1, 0, 1, 63, 64, 65536, 65537),
        "output_buffer_timeout": (-2, -1, 0, 1, 24, 25, 30000, 30001),
        "sample_rate": (-1, 0, 1, 99, 100),
        "msg_timeout": (-1, 0, 1, 999, 1000, 900000, 900001),
    }
    for name, values in numbers.items():
        for value in values:
            await play.once(f"{name} {value}", identification(feature_negotiation=True, **{name: value}))
    wrong = {"heartbeat_interval": 1, "output_buffer_timeout": 1, "output_buffer_size": 1, "sample_rate": 100}
    await play.once("all wrong", identification(msg_timeout=1, deflate=True, snappy=True, **wrong))


@SESSIONS.add("IDENTIFY: answers")
async def answers(play: Play) -> None:
    both = {"deflate": True, "snappy": True}
    await play.each(
        {
            "plain": identification(feature_negotiation=True),
            "not negotiating": identification(feature_negotiation=False, snappy=True),
            "not negotiating, both": identification(**both),
            "both": identification(feature_negotiation=True, **both),
            "TLS that is not there": identification(feature_negotiation=True, tls_v1=True),
            "everything": identification(
                feature_negotiation=True, client_id="c", hostname="h", user_agent="u/1", heartbeat_interval=2000,
                output_buffer_size=1024, output_buffer_timeout=100, sample_rate=50, msg_timeout=5000, short_id="s",
                long_id="l", topology_zone="z", topology_region="r",
            ),
            "unbuffered": identification(feature_negotiation=True, output_buffer_size=-1, output_buffer_timeout=-1),
            "level without deflate": identification(feature_negotiation=True, deflate_level=3),
        }
    )  # fmt: skip
    for level in (-1, 0, 1, 6, 7, 9, 100):
        await play.once(
            f"level {level}", identification(feature_negotiation=True, deflate=True, deflate_level=level), last=b""
        )


@SESSIONS.add("IDENTIFY: answers under other flags", "--max-rdy-count=10", "--msg-timeout=2s", "--max-msg-timeout=20s",
    "--deflate=false", "--snappy=false", "--output-buffer-timeout=100ms", "--max-output-buffer-size=1000")  # fmt: skip
async def answers_under_flags(play: Play) -> None:
    asked = {"deflate": True, "snappy": True}
    await play.once("plain", identification(feature_negotiation=True))
    await play.once("compression", identification(feature_negotiation=True, **asked))
    await play.once("RDY", b"SUB limited ch\nRDY 11\n")
    await play.once("longest timeout", identification(feature_negotiation=True, msg_timeout=20000))
    await play.once("timeout too long", identification(feature_negotiation=True, msg_timeout=20001))
    await play.once("buffer too large", identification(feature_negotiation=True, output_buffer_size=1001))
