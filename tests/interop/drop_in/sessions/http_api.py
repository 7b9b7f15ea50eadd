"""HTTP but for publishing: topics and channels, ``/info``, ``/config``, what is not there, and what is no HTTP."""

from __future__ import annotations

from tests.interop.drop_in import web
from tests.interop.drop_in.session import Play, Sessions

SESSIONS = Sessions()
_NAMES = {
    "good": "made",
    "again": "made",
    "ephemeral": "made%23ephemeral",
    "bare hash": "made#ephemeral",
    "dollar": "a%24",
    "empty": "",
    "long": "n" * 65,
    "space": "a%20b",
    "plus": "a+b",
    "umlaut": "%C3%BC",
}
_VERBS = ("create", "delete", "empty", "pause", "unpause")


@SESSIONS.add("HTTP: topics", alone=True)
async def topics(play: Play) -> None:
    for verb in _VERBS:
        await play.http(f"{verb} without name", "POST", f"/topic/{verb}")
        await play.http(f"{verb} unknown", "POST", f"/topic/{verb}?topic=unknown_{verb}")
        await play.http(f"{verb} bad query", "POST", f"/topic/{verb}?topic=%zz")
        await play.http(f"{verb} semicolon", "POST", f"/topic/{verb}?topic=a;b=c")
        await play.http(f"{verb} by GET", "GET", f"/topic/{verb}?topic=made")
        await play.http(f"{verb} in the body", "POST", f"/topic/{verb}", b"topic=made", _FORM)
        for label, name in _NAMES.items():
            await play.http(f"{verb} {label}", "POST", f"/topic/{verb}?topic={name}")
    await play.http("in the end", "GET", "/stats?format=json&include_mem=false")


_FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@SESSIONS.add("HTTP: channels", alone=True)
async def channels(play: Play) -> None:
    await play.http("topic", "POST", "/topic/create?topic=there")
    for verb in _VERBS:
        act = f"/channel/{verb}"
        await play.http(f"{verb} without anything", "POST", act)
        await play.http(f"{verb} without topic", "POST", f"{act}?channel=ch")
        await play.http(f"{verb} without channel", "POST", f"{act}?topic=there")
        await play.http(f"{verb} bad topic", "POST", f"{act}?topic=$&channel=ch")
        await play.http(f"{verb} bad topic alone", "POST", f"{act}?topic=$")
        await play.http(f"{verb} bad query", "POST", f"{act}?topic=%zz&channel=x")
        await play.http(f"{verb} unknown topic", "POST", f"{act}?topic=unknown&channel=ch")
        await play.http(f"{verb} unknown topic, bad channel", "POST", f"{act}?topic=unknown&channel=$")
        await play.http(f"{verb} by GET", "GET", f"{act}?topic=there&channel=ch")
        for label, name in _NAMES.items():
            await play.http(f"{verb} {label}", "POST", f"{act}?topic=there&channel={name}")
        await play.http(f"{verb} unknown", "POST", f"{act}?topic=there&channel=unknown_{verb}")
    await play.http("in the end", "GET", "/stats?format=json&include_mem=false")


@SESSIONS.add("HTTP: what there is")
async def what_there_is(play: Play) -> None:
    await play.http("ping", "GET", "/ping")
    await play.http("ping with query", "GET", "/ping?x=%zz")
    await play.http("info", "GET", "/info")
    await play.http("info with query", "GET", "/info?x=%zz")
    await play.http("stats with bad query", "GET", "/stats?format=json&topic=%zz")
    for target in (
        "/", "/put?topic=t", "/mput?topic=t", "/create_topic?topic=t", "/nothing", "/topic", "/topic/", "/config",
        "/config/", "/debug", "/debug/pprof/nothing", "/topic/frob?topic=t", "/channel/frob?topic=t", "/lookup?topic=t",
    ):  # fmt: skip
        for method in ("GET", "POST"):
            await play.http(f"{method} {target}", method, target)
    for path in ("/ping", "/info", "/stats", "/pub", "/mpub", "/topic/create", "/channel/pause", "/config/log_level"):
        for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "FROB"):
            label = f"{method} {path}"
            await play.http(label, method, path)
            play.transcript.forget(f"{label} body")
    for target in ("/ping/", "//ping", "/PING", "/Ping", "/topic/create/", "/./ping", "/x/../ping"):
        await play.http(f"GET {target}", "GET", target)
        await play.http(f"POST {target}", "POST", target)
        for method in ("GET", "POST"):
            play.transcript.forget(f"{method} {target} body")


def _request(head: str, body: str = "", *, host: str = "Host: x") -> bytes:
    """``head``: the request line, and headers behind it."""
    line, *headers = head.split("; ")
    return "\r\n".join([line, *filter(None, [host]), *headers, "Connection: close", "", body]).encode()


@SESSIONS.add("HTTP: what is no HTTP")
async def no_http(play: Play) -> None:
    ping, pub = "GET /ping HTTP/1.1", "POST /pub?topic=l HTTP/1.1"
    requests = {
        "NSQ": b"  V2IDENTIFY\n\0\0\0\x02{}",
        "garbage": b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03 garbage\r\n\r\n",
        "no version": b"GET /ping\r\n\r\n",
        "HTTP/3.0": _request("GET /ping HTTP/3.0"),
        "HTTP/1.0": b"GET /ping HTTP/1.0\r\n\r\n",
        "no host": _request(ping, host=""),
        "two hosts": _request(f"{ping}; Host: y"),
        "bad header": _request(f"{ping}; bad header"),
        "space before colon": _request(ping, host="Host : x"),
        "bare newlines": _request(ping).replace(b"\r", b""),
        "absolute": _request("GET http://x/ping HTTP/1.1"),
        "asterisk": _request("OPTIONS * HTTP/1.1"),
        "no slash": _request("GET ping HTTP/1.1"),
        "lower case method": _request("get /ping HTTP/1.1"),
        "two lengths": _request(f"{pub}; Content-Length: 1; Content-Length: 2", "xy"),
        "negative length": _request(f"{pub}; Content-Length: -1"),
        "length of letters": _request(f"{pub}; Content-Length: x"),
        "unknown coding": _request(f"{pub}; Transfer-Encoding: gzip"),
        "bad chunk": _request(f"{pub}; Transfer-Encoding: chunked", "zz\r\nx\r\n"),
        "upgrade": _request(f"{ping}; Upgrade: websocket"),
    }
    for label, data in requests.items():
        await play.raw_http(label, data)
        if b"/ping" not in data:
            play.transcript.forget(f"{label} body")


@SESSIONS.add("HTTP: kept connections")
async def kept(play: Play) -> None:
    def pub(target: str = "/pub?topic=kept") -> bytes:
        return f"POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx".encode()

    last = _request("POST /pub?topic=kept HTTP/1.1; Content-Length: 1", "x")
    old_ping = b"GET /ping HTTP/1.0\r\n%s\r\n"
    for label, request in {
        "three publishes": pub() * 2 + last,
        "a publish after a failure": pub("/pub") + last,
        "a publish after what is not there": pub("/nothing") + last,
        "1.0 kept": old_ping % b"Connection: keep-alive\r\n" + old_ping % b"",
    }.items():
        play.transcript.note(label, await play.statuses(request))
    for expectation in ("100-continue", "magic"):
        play.transcript.note(expectation, await web.expect(play.node.http_address, "/pub?topic=kept", expectation))


@SESSIONS.add("HTTP: config", alone=True)
async def config(play: Play) -> None:
    for key in ("log_level", "nsqlookupd_tcp_addresses"):
        await play.http(f"GET {key}", "GET", f"/config/{key}")
    bodies = {
        "log_level": (b"debug", b"DEBUG", b"Info", b"loud", b"", b'"info"', b"info\n", b" info", b"3", b"warn"),
        "nsqlookupd_tcp_addresses": (
            b"[]", b'["127.0.0.1:1"]', b"[1]", b"{}", b"nonsense", b"", b'"a"', b"[] x", b"null",
        ),
        "max_rdy_count": (b"7",),
        "nothing": (b"7", b""),
        "log-level": (b"info",),
    }  # fmt: skip
    for key, given in bodies.items():
        for body in given:
            await play.http(f"PUT {key} {body!r}", "PUT", f"/config/{key}", body)
            await play.http(f"then {key} {body!r}", "GET", f"/config/{key}")
    for key in (
        "nothing",
        "LOG_LEVEL",
        "log-level",
        "data_path/",
        "config",
        "version",
        "verbose",
        "worker_id",
        "id",
        "node_id",
    ):
        await play.http(f"GET {key}", "GET", f"/config/{key}")
    await play.http("too large", "PUT", "/config/log_level", b"x" * ((1 << 20) + 1))


@SESSIONS.add("HTTP: debug", alone=True)
async def debug(play: Play) -> None:
    await play.http("free memory", "POST", "/debug/freememory")
    await play.http("block rate", "PUT", "/debug/setblockrate?rate=0")
    await play.http("bad block rate", "PUT", "/debug/setblockrate?rate=x")
    for name in ("", "cmdline", "symbol", "heap", "goroutine", "block", "threadcreate"):
        await play.http(f"profile {name}", "GET", f"/debug/pprof/{name}")
        play.transcript.forget(f"profile {name} body")


@SESSIONS.add("HTTP: stats as text", alone=True)
async def stats_text(play: Play) -> None:
    await play.text_stats("empty")
    await play.http("topic", "POST", "/topic/create?topic=bare")
    await play.publish("texts", b"one", b"two")
    client = await play.subscriber("consumer", "texts", "ch", ready=1, client_id="c", hostname="h")
    await client.frame()
    await play.subscriber("another", "texts", "ch2", client_id="d", hostname="h", user_agent="a/1")
    await play.http("pause", "POST", "/channel/pause?topic=texts&channel=ch2")
    await play.http("pause", "POST", "/topic/pause?topic=bare")
    producer = await play.connect("producer")
    await producer.say(b"PUB texts\n\0\0\0\1x")
    await play.text_stats("all")
    await play.text_stats("one topic", "topic=texts")
    await play.text_stats("one channel", "channel=ch2")
    await play.text_stats("without clients", "include_clients=false")
    await play.text_stats("without memory", "include_mem=false")
    await play.text_stats("no such topic", "topic=no")
    await client.abort()
