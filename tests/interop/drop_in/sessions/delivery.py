"""Who gets which message when, and what FIN, REQ, TOUCH, RDY and CLS do to it."""

from __future__ import annotations

from tests.interop.drop_in.client import Client, messages, sized
from tests.interop.drop_in.session import Play, Sessions, identification
from tests.interop.drop_in.transcript import Frame

SESSIONS = Sessions()
_QUIET_S = 0.4


async def taken(client: Client, count: int) -> list[bytes]:
    frames = [await client.frame() for _ in range(count)]
    return [frame.ident for frame in frames if frame is not None]


async def settled(client: Client) -> None:
    """What was sent before has been run."""
    await client.say(b"PUB elsewhere\n" + sized(b"x"))


@SESSIONS.add("FIN, REQ and TOUCH of others'")
async def foreign(play: Play) -> None:
    await play.publish("foreign", b"one")
    owner = await play.subscriber("owner", "foreign", ready=1)
    (ident,) = await taken(owner, 1)
    other = await play.subscriber("other", "foreign")
    for word, tail in ((b"FIN ", b""), (b"REQ ", b" 0"), (b"TOUCH ", b"")):
        await other.say(word + ident + tail + b"\n")
    stranger = await play.subscriber("another channel", "foreign", "ch2")
    await stranger.say(b"FIN " + ident + b"\n")
    await owner.send(b"FIN " + ident + b"\n")
    for word, tail in ((b"FIN ", b""), (b"REQ ", b" 0"), (b"TOUCH ", b"")):
        await owner.say(word + ident + tail + b"\n")
    await settled(owner)


@SESSIONS.add("answers to a message that timed out")
async def late_answers(play: Play) -> None:
    await play.publish("late", b"one")
    client = await play.subscriber("consumer", "late", ready=1, msg_timeout=2000)
    (ident,) = await taken(client, 1)
    await client.send(b"RDY 0\n")
    other = await play.subscriber("other", "late", ready=1)
    await taken(other, 1)
    for word, tail in ((b"FIN ", b""), (b"REQ ", b" 0"), (b"TOUCH ", b"")):
        await client.say(word + ident + tail + b"\n")
    await other.send(b"FIN " + ident + b"\n")
    await settled(other)
    await play.stats("in the end", "late")


@SESSIONS.add("TOUCH keeps a message")
async def touch(play: Play) -> None:
    await play.publish("touched", b"one")
    client = await play.subscriber("consumer", "touched", ready=1, msg_timeout=4000)
    (ident,) = await taken(client, 1)
    for _ in range(3):
        await client.quiet(2.0)
        await client.send(b"TOUCH " + ident + b"\n")
    await client.send(b"FIN " + ident + b"\n")
    await settled(client)
    await play.stats("in the end", "touched")


@SESSIONS.add("REQ and attempts")
async def requeues(play: Play) -> None:
    await play.publish("requeued", b"one", b"two", b"three")
    client = await play.subscriber("consumer", "requeued", ready=1)
    for _ in range(5):
        (ident,) = await taken(client, 1)
        await client.send(b"REQ " + ident + b" 0\n")
    for _ in range(3):
        (ident,) = await taken(client, 1)
        await client.send(b"FIN " + ident + b"\n")
    await settled(client)
    await play.stats("in the end", "requeued")


@SESSIONS.add("REQ with delays comes back in their order")
async def requeue_order(play: Play) -> None:
    await play.publish("delayed", b"one", b"two", b"three")
    client = await play.subscriber("consumer", "delayed", ready=3)
    idents = await taken(client, 3)
    await client.quiet(5.5)  # nsqd looks at a new channel's timeouts only then
    for ident, delay_ms in zip(idents, (1500, 300, 900), strict=True):
        await client.send(b"REQ %s %d\n" % (ident, delay_ms))
    for ident in await taken(client, 3):
        await client.send(b"FIN " + ident + b"\n")
    await settled(client)
    await play.stats("in the end", "delayed")


@SESSIONS.add("REQ beyond the longest delay", "--max-req-timeout=300ms")
async def requeue_clamped(play: Play) -> None:
    await play.publish("clamped", b"one")
    client = await play.subscriber("consumer", "clamped", ready=1)
    (ident,) = await taken(client, 1)
    await client.send(b"REQ " + ident + b" 999999999\n")
    await taken(client, 1)
    await play.once("DPUB too long", b"DPUB clamped 301\n" + sized(b"x"))
    await play.http("defer too long", "POST", "/pub?topic=clamped&defer=301", b"x")
    await play.http("longest defer", "POST", "/pub?topic=clamped&defer=300", b"x")


@SESSIONS.add("RDY is a level")
async def level(play: Play) -> None:
    await play.publish("level", *(b"%d" % number for number in range(8)))
    client = await play.subscriber("consumer", "level", ready=3)
    idents = await taken(client, 3)
    await client.quiet(_QUIET_S)
    await client.send(b"FIN " + idents[0] + b"\n")
    await taken(client, 1)
    await client.send(b"RDY 1\nFIN " + idents[1] + b"\n")
    await client.quiet(_QUIET_S)
    await client.send(b"RDY 0\nFIN " + idents[2] + b"\n")
    await client.quiet(_QUIET_S)
    await play.stats("stopped", "level")
    await client.send(b"RDY 2500\n")
    await taken(client, 4)


@SESSIONS.add("CLS")
async def cls(play: Play) -> None:
    await play.publish("closing", b"one", b"two", b"three")
    client = await play.subscriber("consumer", "closing", ready=2)
    idents = await taken(client, 2)
    await client.say(b"CLS\n")
    await client.send(b"RDY 5\nFIN " + idents[0] + b"\nTOUCH " + idents[1] + b"\nREQ " + idents[1] + b" 0\n")
    await client.quiet(_QUIET_S)
    await settled(client)
    await play.stats("closed", "closing")
    await client.finish()
    other = await play.subscriber("other", "closing", ready=5)
    await taken(other, 2)


@SESSIONS.add("attempts over connections")
async def attempts(play: Play) -> None:
    await play.publish("attempted", b"one")
    for number in range(3):
        client = await play.subscriber(f"consumer {number}", "attempted", ready=1, msg_timeout=1000)
        await taken(client, 1)
        await client.abort()
    client = await play.subscriber("last", "attempted", ready=1)
    (ident,) = await taken(client, 1)
    await client.send(b"FIN " + ident + b"\n")
    await settled(client)
    await play.stats("in the end", "attempted")


@SESSIONS.add("ephemeral channel")
async def ephemeral_channel(play: Play) -> None:
    topic = "with_ephemeral"
    await play.publish(topic, b"early")
    client = await play.subscriber("consumer", topic, "ch#ephemeral", ready=5)
    await client.frame()
    await play.stats("subscribed", topic)
    other = await play.subscriber("other", topic, "ch#ephemeral")
    await other.finish()
    await play.stats("one left", topic)
    await client.finish()
    await play.publish(topic, b"late")
    await play.stats("nobody left", topic)
    await play.http("by HTTP", "POST", f"/channel/create?topic={topic}&channel=x%23ephemeral")
    await play.stats("by HTTP", topic)


@SESSIONS.add("ephemeral topic")
async def ephemeral_topic(play: Play) -> None:
    topic = "brief%23ephemeral"
    await play.publish(topic, b"early")
    client = await play.subscriber("consumer", "brief#ephemeral", "ch#ephemeral", ready=5)
    await client.frame()
    await play.stats("subscribed", topic)
    await client.finish()
    await client.abort()
    await play.stats("nobody left", topic)
    lasting = await play.subscriber("lasting", "brief#ephemeral", "ch", ready=5)
    await lasting.finish()
    await play.stats("with a lasting channel", topic)
    await play.http("delete", "POST", f"/channel/delete?topic={topic}&channel=ch")
    await play.stats("deleted", topic)


@SESSIONS.add("ephemeral beyond memory", "--mem-queue-size=5")
async def ephemeral_overflow(play: Play) -> None:
    await play.publish("small%23ephemeral", *(b"%d" % number for number in range(12)))
    await play.stats("overflowed", "small%23ephemeral")
    await play.publish("small", *(b"%d" % number for number in range(12)))
    await play.stats("on disk", "small")


@SESSIONS.add("consumer limit", "--max-channel-consumers=2")
async def consumer_limit(play: Play) -> None:
    first = await play.subscriber("first", "limited")
    await play.subscriber("second", "limited")
    third = await play.connect("third")
    await third.say(b"SUB limited ch\n")
    await third.rest()
    await play.subscriber("other channel", "limited", "ch2")
    await first.finish()
    await play.subscriber("in its place", "limited")
    await play.stats("in the end", "limited")


@SESSIONS.add("heartbeats")
async def heartbeats(play: Play) -> None:
    client = await play.connect("answers", heartbeats=True)
    silent = await play.connect("silent")
    for one in (client, silent):
        await one.say(identification(heartbeat_interval=1000))
    for _ in range(3):
        await client.frame()
        await client.send(b"NOP\n")
    await silent.rest()
    off = await play.connect("off", heartbeats=True)
    await off.say(identification(heartbeat_interval=-1))
    await off.quiet(2.5)


@SESSIONS.add("sample rate")
async def samples(play: Play) -> None:
    """How many come is drawn: noted is whether it is about half, and that the rest is gone."""
    bodies = [b"%d" % number for number in range(400)]
    producer = await play.connect("producer")
    await producer.say(b"MPUB sampled\n" + messages(*bodies))
    client = await play.connect("consumer")
    await client.say(identification(sample_rate=50, feature_negotiation=True))
    await client.say(b"SUB sampled ch\n")
    counted = Counted()
    await client.send(b"RDY 2500\n")
    await client.drain_into(counted.add, _QUIET_S * 3)
    play.transcript.note("share", "about half" if 120 < counted.messages < 280 else f"{counted.messages} of 400")
    everything = await play.http("uncompared", "GET", "/stats?format=json&topic=sampled&include_clients=false")
    play.transcript.forget("uncompared")
    play.transcript.note("left", "nothing waits" if b'"channel_name":"ch","depth":0' in everything else "some wait")


class Counted:
    def __init__(self) -> None:
        self.messages = 0

    def add(self, _frame: Frame) -> None:
        self.messages += 1


@SESSIONS.add("deletion under consumers")
async def deletion(play: Play) -> None:
    consumer = await play.subscriber("of the channel", "deleted", ready=5)
    other = await play.subscriber("of another", "deleted", "ch2", ready=5)
    await play.publish("deleted", b"one")
    await consumer.frame()
    await other.frame()
    await play.http("delete channel", "POST", "/channel/delete?topic=deleted&channel=ch")
    await consumer.rest()
    await play.http("delete topic", "POST", "/topic/delete?topic=deleted")
    await other.rest()
    await play.stats("in the end", "deleted")
    again = await play.subscriber("again", "deleted", ready=5)
    await again.quiet(_QUIET_S)


@SESSIONS.add("order of a backlog")
async def backlog(play: Play) -> None:
    producer = await play.connect("producer")
    await producer.say(b"MPUB ordered\n" + messages(*(b"%d" % number for number in range(50))))
    client = await play.subscriber("consumer", "ordered", ready=50)
    await taken(client, 50)
