"""``/pub`` and ``/mpub`` in every form, and what arrives."""

from __future__ import annotations

from tests.interop.drop_in.client import messages, sized
from tests.interop.drop_in.session import Play, Sessions

SESSIONS = Sessions()
_BIG = 1 << 20
_BODY = 5 << 20


async def arrived(play: Play, topic: str, count: int) -> None:
    client = await play.subscriber(f"of {topic}", topic, ready=100)
    for _ in range(count):
        await client.frame()
    await client.quiet(0.3)


@SESSIONS.add("HTTP: /pub")
async def pub(play: Play) -> None:
    for label, (query, body) in {
        "good": ("topic=web", b"x"),
        "empty": ("topic=web", b""),
        "empty without topic": ("", b""),
        "no topic": ("", b"x"),
        "empty topic": ("topic=", b"x"),
        "bad topic": ("topic=$", b"x"),
        "bad query": ("topic=%zz", b"x"),
        "semicolon": ("topic=web;x=1", b"x"),
        "largest": ("topic=web_large", b"x" * _BIG),
        "too big": ("topic=web_large", b"x" * (_BIG + 1)),
        "too big without topic": ("", b"x" * (_BIG + 1)),
        "topic twice": ("topic=web&topic=$", b"x"),
        "topic twice, bad first": ("topic=$&topic=web", b"x"),
        "ephemeral": ("topic=web%23ephemeral", b"x"),
        "defer": ("topic=web_later&defer=1000000", b"x"),
        "defer 0": ("topic=web&defer=0", b"x"),
        "defer empty": ("topic=web&defer=", b"x"),
        "defer negative": ("topic=web&defer=-1", b"x"),
        "defer plus": ("topic=web_later&defer=%2B1000", b"x"),
        "defer letters": ("topic=web&defer=x", b"x"),
        "defer fraction": ("topic=web&defer=1.5", b"x"),
        "defer longest": ("topic=web_later&defer=3600000", b"x"),
        "defer too long": ("topic=web&defer=3600001", b"x"),
        "defer huge": ("topic=web&defer=99999999999999999999", b"x"),
        "defer beyond 63 bits": ("topic=web&defer=9223372036854775807", b"x"),
        "defer with underscore": ("topic=web&defer=1_0", b"x"),
        "binary": ("topic=web", bytes(range(256))),
    }.items():
        await play.http(label, "POST", f"/pub?{query}", body)
    chunked = "POST /pub?topic=web HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    await play.raw_http("chunked", chunked.encode() + b"3\r\nabc\r\n2;ext=1\r\nde\r\n0\r\nTrailer: x\r\n\r\n")
    await play.raw_http("chunked empty", chunked.encode() + b"0\r\n\r\n")
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    await play.http("form", "POST", "/pub?topic=web", b"topic=$&x=1", form)
    await play.http("form without topic", "POST", "/pub", b"topic=web", form)
    await play.http("accept", "POST", "/pub?topic=web", b"x", {"Accept": "application/vnd.nsq; version=1.0"})
    await play.stats("deferred", "web_later")
    await arrived(play, "web", 8)


@SESSIONS.add("HTTP: /mpub as text")
async def mpub_text(play: Play) -> None:
    for label, (query, body) in {
        "three": ("topic=lines", b"one\ntwo\nthree"),
        "newline at the end": ("topic=lines", b"four\n"),
        "empty lines": ("topic=lines", b"\n\nfive\n\n\nsix\n\n"),
        "returns": ("topic=lines", b"seven\r\neight\r\n"),
        "only a newline": ("topic=lines", b"\n"),
        "empty": ("topic=lines", b""),
        "zero byte": ("topic=lines", b"ni\0ne"),
        "no topic": ("", b"x"),
        "bad topic": ("topic=$", b"x"),
        "bad query": ("topic=%zz", b"x"),
        "line too big": ("topic=lines_large", b"ok\n" + b"x" * (_BIG + 1)),
        "largest line": ("topic=lines_large", b"x" * _BIG),
        "body too big": ("topic=lines_large", b"x\n" * (_BODY // 2) + b"x"),
        "largest body": ("topic=lines_large", (b"x" * 65_535 + b"\n") * (_BODY // 65_536)),
        "binary=false": ("topic=lines&binary=false", b"ten\neleven"),
        "binary=0": ("topic=lines&binary=0", b"twelve"),
        "defer is nothing": ("topic=lines&defer=100000", b"thirteen"),
    }.items():
        await play.http(label, "POST", f"/mpub?{query}", body)
    await play.stats("nothing of what was refused", "lines_large")
    await arrived(play, "lines", 13)


@SESSIONS.add("HTTP: /mpub binary")
async def mpub_binary(play: Play) -> None:
    good = messages(b"one", b"two")[4:]
    one = (1).to_bytes(4, "big")
    for label, (query, body) in {
        "true": ("topic=parts&binary=true", good),
        "1": ("topic=parts&binary=1", good),
        "empty value": ("topic=parts&binary=", good),
        "any value": ("topic=parts&binary=yes", good),
        "without value": ("topic=parts&binary", good),
        "upper case false": ("topic=parts&binary=FALSE", good),
        "empty": ("topic=parts&binary=true", b""),
        "count cut": ("topic=parts&binary=true", b"\0\0"),
        "count 0": ("topic=parts&binary=true", bytes(4)),
        "count negative": ("topic=parts&binary=true", b"\xff\xff\xff\xff"),
        "count too large": ("topic=parts&binary=true", b"\x7f\xff\xff\xff" + sized(b"x")),
        "more than there are": ("topic=parts&binary=true", (2).to_bytes(4, "big") + sized(b"x")),
        "fewer than there are": ("topic=parts&binary=true", one + sized(b"three") + sized(b"four")),
        "size cut": ("topic=parts&binary=true", one + b"\0\0"),
        "body cut": ("topic=parts&binary=true", one + b"\0\0\0\x05abc"),
        "empty message": ("topic=parts&binary=true", one + bytes(4)),
        "negative message": ("topic=parts&binary=true", one + b"\xff\xff\xff\xff"),
        "message too big": ("topic=parts&binary=true", one + (_BIG + 1).to_bytes(4, "big")),
        "message too big, all of it": ("topic=parts&binary=true", one + sized(b"x" * (_BIG + 1))),
        "body too big": ("topic=parts&binary=true", bytes(_BODY + 1)),
        "no topic": ("binary=true", good),
        "bad topic": ("topic=$&binary=true", good),
    }.items():
        await play.http(label, "POST", f"/mpub?{query}", body)
    await arrived(play, "parts", 13)


@SESSIONS.add("HTTP: other limits", "--max-msg-size=100", "--max-body-size=1000")
async def limits(play: Play) -> None:
    await play.http("largest", "POST", "/pub?topic=narrow", b"x" * 100)
    await play.http("too big", "POST", "/pub?topic=narrow", b"x" * 101)
    await play.http("line too big", "POST", "/mpub?topic=narrow", b"x\n" + b"x" * 101)
    await play.http("body too big", "POST", "/mpub?topic=narrow", b"x\n" * 501)
    await play.once("PUB", b"PUB narrow\n" + sized(b"x" * 100))
    await play.once("PUB too big", b"PUB narrow\n" + sized(b"x" * 101))
    await play.once("MPUB too big", b"MPUB narrow\n" + sized(b"x" * 1001))
    await play.once("MPUB count too large", b"MPUB narrow\n" + sized((201).to_bytes(4, "big") + b"x" * 800))
    await play.once("IDENTIFY too big", b"IDENTIFY\n" + sized(b" " * 1001))
