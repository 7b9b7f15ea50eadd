"""TLS, deflate and snappy, alone and together, and what is refused without TLS."""

from __future__ import annotations

import ssl

from tests.interop.drop_in.client import Client, messages, sized
from tests.interop.drop_in.node import CERTIFICATES
from tests.interop.drop_in.session import Play, Sessions, identification

SESSIONS = Sessions()
_KEYS = (f"--tls-cert={CERTIFICATES / 'server.pem'}", f"--tls-key={CERTIFICATES / 'server.key'}")
_ROOT = f"--tls-root-ca-file={CERTIFICATES / 'authority.pem'}"


def context(version: ssl.TLSVersion | None = None, *, certificate: bool = False) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    if version is not None:
        made.minimum_version = made.maximum_version = version
    if certificate:
        made.load_cert_chain(CERTIFICATES / "client.pem", CERTIFICATES / "client.key")
    return made


async def upgraded(
    play: Play, label: str, *, tls: ssl.SSLContext | None = None, compression: str = "", **more: object
) -> Client | None:
    """A connection with these layers; None where TLS did not come about."""
    client = await play.connect(label)
    asked = {compression: True} if compression else {}
    await client.say(identification(feature_negotiation=True, tls_v1=tls is not None, **asked, **more))
    if tls is not None:
        if not await client.start_tls(tls):
            return None
        if await client.frame() is None:
            return None
    if compression:
        client.start_deflate() if compression == "deflate" else client.start_snappy()
        await client.frame()
    return client


@SESSIONS.add("layers", *_KEYS)
async def layers(play: Play) -> None:
    for version in (None, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        for compression in ("", "deflate", "snappy"):
            tls = None if version is None else context(version)
            label = f"{version.name if version else 'no TLS'} {compression}"
            client = await upgraded(play, label, tls=tls, compression=compression)
            if client is not None:
                await _used(client, label.replace(" ", "_"))


async def _used(client: Client, topic: str) -> None:
    name = topic.encode()
    await client.say(b"PUB " + name + b"\n" + sized(b"x" * 1000))
    await client.say(b"MPUB " + name + b"\n" + messages(bytes(range(256)) * 40, b"last"))
    await client.say(b"SUB " + name + b" ch\n")
    await client.send(b"RDY 3\n")
    for _ in range(3):
        await client.frame()
    await client.say(b"FIN 0123456789abcdef\n")
    await client.say(b"FROB\n")
    await client.rest()


@SESSIONS.add("layers: what is answered", *_KEYS)
async def negotiation(play: Play) -> None:
    both = {"deflate": True, "snappy": True}
    await play.once("both", identification(feature_negotiation=True, tls_v1=True, **both), last=b"")
    await play.once("not negotiating", identification(tls_v1=True, snappy=True))
    for level in (0, 1, 6, 7, 9):
        await upgraded(play, f"deflate {level}", compression="deflate", deflate_level=level)
    garbage = await play.connect("garbage for TLS")
    await garbage.say(identification(feature_negotiation=True, tls_v1=True))
    await garbage.send(b"PUB t\n" + sized(b"x"))
    await garbage.rest()
    for compression in ("deflate", "snappy"):
        client = await upgraded(play, f"garbage for {compression}", compression=compression)
        if client is not None:
            client.stop_encoding()
            await client.send(b"\xff" * 64)
            await client.rest()


@SESSIONS.add("layers: asked for twice", *_KEYS)
async def twice(play: Play) -> None:
    client = await upgraded(play, "snappy", compression="snappy")
    if client is not None:
        await client.say(identification(feature_negotiation=True))


@SESSIONS.add("layers: stats of a consumer", *_KEYS, alone=True)
async def stats(play: Play) -> None:
    for compression in ("", "deflate", "snappy"):
        client = await upgraded(
            play, f"with {compression}", tls=context(ssl.TLSVersion.TLSv1_2), compression=compression
        )
        if client is not None:
            await client.say(b"SUB secured ch\n")
            await play.http(f"stats {compression}", "GET", "/stats?format=json&include_mem=false")
            await client.abort()
            await play.http("wait", "GET", "/ping")


@SESSIONS.add("TLS: versions below the least", *_KEYS, "--tls-min-version=tls1.3")
async def least_version(play: Play) -> None:
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        client = await upgraded(play, version.name, tls=context(version))
        if client is not None:
            await client.say(b"PUB t\n" + sized(b"x"))


@SESSIONS.add("TLS: required", *_KEYS, "--tls-required")
async def required(play: Play) -> None:
    await _without_tls(play)
    client = await upgraded(play, "with TLS", tls=context())
    if client is not None:
        await client.say(b"PUB t\n" + sized(b"x"))


@SESSIONS.add("TLS: required but for HTTP", *_KEYS, "--tls-required=tcp-https")
async def required_but_http(play: Play) -> None:
    await _without_tls(play)


@SESSIONS.add("HTTPS", *_KEYS, "--tls-required", "--max-msg-size=9")
async def https(play: Play) -> None:
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        for method, target in (("GET", "/ping"), ("GET", "/info"), ("POST", "/topic/create?topic=t"), ("GET", "/none")):
            await play.https(f"{version.name} {method} {target}", method, target, context(version))


async def _without_tls(play: Play) -> None:
    for label, data in {
        "PUB": b"PUB t\n" + sized(b"x"),
        "SUB": b"SUB t ch\n",
        "NOP": b"NOP\n",
        "AUTH": b"AUTH\n" + sized(b"s"),
        "unknown": b"FROB\n",
        "RDY": b"RDY 1\n",
        "CLS": b"CLS\n",
        "without negotiation": identification(tls_v1=True),
        "without asking": identification(feature_negotiation=True),
    }.items():
        await play.once(label, data)
    for method, target in (
        ("GET", "/ping"),
        ("GET", "/stats"),
        ("POST", "/pub?topic=t"),
        ("GET", "/nothing"),
        ("PUT", "/x"),
    ):
        await play.http(f"{method} {target}", method, target, b"x" if method == "POST" else b"")
        if target == "/stats":
            play.transcript.forget(f"{method} {target} body")


@SESSIONS.add("TLS: any client certificate", *_KEYS, "--tls-client-auth-policy=require")
async def certificate_required(play: Play) -> None:
    await play.once("tls-required follows", b"NOP\n")
    await _with_certificates(play)


@SESSIONS.add("TLS: a verified client certificate", *_KEYS, _ROOT, "--tls-client-auth-policy=require-verify")
async def certificate_verified(play: Play) -> None:
    await _with_certificates(play)


async def _with_certificates(play: Play) -> None:
    for certificate in (False, True):
        label = "with certificate" if certificate else "without"
        client = await upgraded(play, label, tls=context(ssl.TLSVersion.TLSv1_2, certificate=certificate))
        if client is not None:
            await client.say(b"PUB t\n" + sized(b"x"))
