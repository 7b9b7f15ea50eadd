"""The differences from nsqd that are meant: each by the words with which docs/protocol.md begins its reason."""

from __future__ import annotations

from collections.abc import Iterable

from tests.interop.drop_in.comparison import Kept, Place


def _kept(name: str, *places: tuple[str, str, str, str]) -> Kept:
    """``places``: session, label, nsqd's answer, ours; all shell patterns."""
    return Kept(name, tuple(Place(*place) for place in places))


def _starts(flags: Iterable[str], ours: str, theirs: str = "serves") -> tuple[tuple[str, str, str, str], ...]:
    places = []
    for flag in flags:
        places.append(("flags: starts*", flag, theirs, ours))
        if theirs == "serves":
            places.append(("flags: starts*", f"{flag} complaint", "", "said"))
    return tuple(places)


_NONSENSE = (
    "--msg-timeout=0", "--msg-timeout=-5s", "--max-rdy-count=-1", "--mem-queue-size=-1", "--max-msg-size=0",
    "--max-msg-size=-1", "--max-body-size=0", "--broadcast-tcp-port=-1", "--broadcast-tcp-port=70000",
    "--statsd-interval=0", "--statsd-udp-packet-size=-1", "--sync-every=0", "--sync-timeout=0",
    "--max-bytes-per-file=0", "--max-req-timeout=2000h", "--max-heartbeat-interval=0", "--max-channel-consumers=-1",
    "--http-client-request-timeout=0", "--lookupd-tcp-address=", "--lookupd-tcp-address=nonsense",
    "--auth-http-address=nonsense", "--statsd-address=nonsense", "--tls-client-auth-policy=require-verify",
)  # fmt: skip
_OUR_FLAGS = (
    "log-format", "max-channels-per-topic", "max-connections", "max-connections-per-address", "max-memory",
    "max-mpub-messages", "max-topics",
)  # fmt: skip
_NEWER_FLAGS = ("auth-http-request-method", "enable-experiment", "topology-region", "topology-zone")
_MISSPELT = ("/ping/", "//ping", "/PING", "/Ping", "/topic/create/", "/./ping", "/x/../ping")
_HEADERS = ("content-type", "x-nsq-content-type", "location")
_CUT = ("PUB", "DPUB", "MPUB", "AUTH where there is none", "IDENTIFY: bodies")

KEPT: tuple[Kept, ...] = (
    _kept(
        "Fields and flags newer than the tag 1.3.0",
        ("*", "*topology_zone", "", '"*"'),
        ("*", "*topology_region", "", '"*"'),
        *(("flags: help", f"flag {name}", "", "is there") for name in _NEWER_FLAGS),
    ),
    _kept("Flags of our own", *(("flags: help", f"flag {name}", "", "is there") for name in _OUR_FLAGS)),
    _kept(
        "A second bad word does not repeat its code",
        ("*", "*MPUB*", "error E_BAD_TOPIC E_BAD_TOPIC *", "error E_BAD_TOPIC MPUB *"),
        ("MPUB", "bad topic*", "error E_BAD_TOPIC E_BAD_TOPIC *", "error E_BAD_TOPIC MPUB *"),
    ),
    _kept(
        "An MPUB whose body holds more than its messages is refused",
        ("MPUB whose parts do not fit", "more than it says", "response OK | error *", "error E_BAD_BODY *"),
    ),
    _kept(
        "Connections, topics, channels of a topic and messages of an MPUB are bounded",
        (
            "MPUB",
            "count too large",
            "error E_BAD_BODY MPUB invalid message count *",
            "error E_BAD_BODY MPUB too many *",
        ),
    ),
    _kept(
        "The secret of AUTH has at most 64 KiB",
        (
            "AUTH where there is none",
            "too big",
            "error E_BAD_BODY AUTH body too big *",
            "error E_BAD_BODY AUTH * 65536*",
        ),
    ),
    _kept(
        "A command that the end of the stream cuts off gets no error",
        *((session, "*", "*failed to read *", "*closed") for session in _CUT),
    ),
    _kept("Texts of errors are UTF-8", ("words", "binary", "error *\\xff\\xfe*", "error *\\xef\\xbf\\xbd*")),
    _kept(
        "Numbers that do not fit are not wrapped into negative ones",
        ("DPUB", "beyond 63 bits", "response OK*", "error E_INVALID *"),
        ("RDY", "beyond 63 bits", "* -9223372036854775807 out of *", "* 9223372036854775809 out of *"),
    ),
    _kept(
        "A key of IDENTIFY comes once, in small letters",
        ("IDENTIFY: bodies", "key twice", "response OK*", "error E_BAD_BODY *"),
        ("IDENTIFY: bodies", "upper case key", "error E_BAD_BODY *", "response OK*"),
    ),
    _kept(
        "Who gives no name is shown by the address",
        ("*", "*.client_id", '""', '"127.0.0.1"'),
        ("*", "*.hostname", '""', '"127.0.0.1"'),
    ),
    _kept(
        "A connection that ends gives back what was in flight to it at once",
        ("attempts over connections", "*.requeue_count", "0", "3"),
        ("attempts over connections", "*.timeout_count", "3", "0"),
    ),
    _kept(
        "`backend_depth` is without the message that is next",
        ("restart: through disk", "before*.backend_depth", "20", "19"),
    ),
    _kept(
        "Paths are taken as they are written",
        *(("HTTP: what there is", f"* {path}", "30?*", "404 Not Found") for path in _MISSPELT),
        *(("HTTP: what there is", f"* {path} {header}", "*", "*") for path in _MISSPELT for header in _HEADERS),
        ("HTTP: config", "GET data_path/", "301 *", "404 Not Found"),
        ("HTTP: config", "GET data_path/ *", "*", "*"),
        ("HTTP: what is no HTTP", "asterisk", "200 OK", "404 Not Found"),
        ("HTTP: what is no HTTP", "asterisk *", "", "*"),
    ),
    _kept(
        "What is no HTTP is refused with the reason in JSON",
        ("HTTP: what is no HTTP", "* content-type", "*", "application/problem+json"),
        ("HTTP: what is no HTTP", "* body", "*", '{"detail":*'),
        ("HTTP: what is no HTTP", "HTTP/3.0", "505 *", "505 *"),
        *(("HTTP: what is no HTTP", label, "400 *", "400 *") for label in ("no host", "space before colon")),
        ("HTTP: what is no HTTP", "bad chunk", "500 *", "400 *"),
        ("HTTP: what is no HTTP", "bad chunk x-nsq-content-type", "*", ""),
    ),
    _kept(
        "There is no Go runtime to look into",
        ("HTTP: debug", "profile *", "200 OK", "404 Not Found"),
        ("HTTP: debug", "* block rate", "400 *", "404 Not Found"),
        ("HTTP: debug", "block rate", "500 *", "404 Not Found"),
        ("HTTP: debug", "free memory", "500 *", "200 OK"),
        *(("HTTP: debug", f"* {part}*", "*", "*") for part in ("body", "content-type", "x-nsq-content-type")),
    ),
    _kept(
        "Values that cannot work are refused",
        *_starts(_NONSENSE, "status 1"),
        *_starts(("--tls-client-auth-policy=frob",), "status 2"),
        *_starts(("--tls-client-auth-policy=frob",), "status 2", "status 1"),
        *_starts((f"--e2e-processing-latency-percentile={bad}" for bad in ("x", "0.5,", "")), "status 2", "status 1"),
        ("config file", "number for text", "serves", "status 1"),
        ("config file", "number for text complaint", "", "said"),
        ("config file", "numbers in list", "status 2", "status 1"),
        ("HTTP: config", "PUT nsqlookupd_tcp_addresses b'null'*", "*", "*"),
        ("HTTP: config", "then nsqlookupd_tcp_addresses b'null'*", "*", "*"),
    ),
    _kept("A Unix socket's path has a slash", *_starts(("--tcp-address=nonsense:port:more",), "status 1")),
    _kept(
        "The size of an MPUB is checked before its permission",
        ("AUTH: before anything", "MPUB of nothing", "error E_AUTH_FIRST *", "error E_BAD_BODY *"),
    ),
    _kept(
        "TLS is 1.2 or 1.3",
        ("layers: stats of a consumer", "*.tls_cipher_suite", '"TLS_*"', '"TLS_*"'),
        ("layers: what is answered", "garbage for TLS", "* | error E_IDENTIFY_FAILED *", "response JSON | closed"),
    ),
    _kept(
        "A stop waits for nobody",
        ("SIGTERM under a connection that has said nothing", "status", "goes on", "status 0"),
    ),
)
