"""AUTH against a server: what is asked, who may do what, and when it runs out."""

from __future__ import annotations

from tests.interop.drop_in.auth_server import ANSWERS
from tests.interop.drop_in.client import messages, sized
from tests.interop.drop_in.session import Play, Sessions, identification

SESSIONS = Sessions()
_ADDRESS = "--auth-http-address=AUTH"
_COMMANDS = {
    "PUB": b"PUB only\n" + sized(b"x"),
    "MPUB": b"MPUB only\n" + messages(b"x"),
    "DPUB": b"DPUB only 0\n" + sized(b"x"),
    "SUB": b"SUB only ch\n",
    "PUB elsewhere": b"PUB other\n" + sized(b"x"),
    "SUB elsewhere": b"SUB only other\n",
    "SUB other": b"SUB other ch\n",
}


def auth(secret: str) -> bytes:
    return b"AUTH\n" + sized(secret.encode())


@SESSIONS.add("AUTH: before anything", _ADDRESS)
async def first(play: Play) -> None:
    await play.once("IDENTIFY", identification(feature_negotiation=True), last=b"")
    for label, data in _COMMANDS.items():
        await play.once(label, data, last=b"NOP\n")
    for label, data in {
        "bad name first": b"PUB $\n" + sized(b"x"),
        "bad MPUB name": b"MPUB $\n" + messages(b"x"),
        "empty body first": b"PUB only\n" + sized(b""),
        "MPUB of nothing": b"MPUB only\n" + sized(b""),
        "with a word": b"AUTH now\n" + sized(b"all"),
        "empty secret": b"AUTH\n" + sized(b""),
        "negative size": b"AUTH\n\xff\xff\xff\xff",
    }.items():
        await play.once(label, data, last=b"NOP\n")
    await play.http("HTTP needs none", "POST", "/pub?topic=only", b"x")


@SESSIONS.add("AUTH: answers", _ADDRESS)
async def answers(play: Play) -> None:
    for secret in (*ANSWERS, "unknown", "with space", "ü&=%"):
        client = await play.connect(secret)
        await client.say(auth(secret))
        await client.finish()
    await play.once("twice", auth("all") + auth("all"), last=b"NOP\n")
    await play.once("behind SUB", auth("all") + b"SUB only ch\n" + auth("all"), last=b"NOP\n")
    await play.once("before IDENTIFY", auth("all") + identification(feature_negotiation=True), last=b"NOP\n")


@SESSIONS.add("AUTH: permissions", _ADDRESS)
async def permissions(play: Play) -> None:
    for secret in ("all", "two grants", "one channel", "unanchored", "publish", "subscribe"):
        for label, data in _COMMANDS.items():
            await play.once(f"{secret}: {label}", auth(secret) + data, last=b"NOP\n")


@SESSIONS.add("AUTH: running out", _ADDRESS, alone=True)
async def expiry(play: Play) -> None:
    for secret in ("short", "short then never"):
        client = await play.connect(secret)
        await client.say(auth(secret))
        await client.say(_COMMANDS["PUB"])
        await client.quiet(3.5)
        await client.say(_COMMANDS["PUB"])
        await client.say(b"NOP\n" + _COMMANDS["PUB"])


@SESSIONS.add("AUTH: what is asked", _ADDRESS, alone=True)
async def questions(play: Play) -> None:
    client = await play.connect("client")
    await client.say(identification(client_id="c"))
    await client.say(auth("named"))
    await client.say(b"SUB only ch\n")
    for question in play.auth.questions:
        play.transcript.note("asked", question)
    await play.http("shown", "GET", "/stats?format=json&include_mem=false")
    await client.abort()


@SESSIONS.add("AUTH: nobody there", "--auth-http-address=127.0.0.1:1")
async def nobody(play: Play) -> None:
    await play.once("AUTH", auth("all"), last=b"NOP\n")
