"""What a stop and a start keep: backlogs and their order, what was in flight or deferred, pauses, counters."""

from __future__ import annotations

import signal

from tests.interop.drop_in.client import messages
from tests.interop.drop_in.session import Play, Sessions

SESSIONS = Sessions()


async def restarted(play: Play, *signals: int) -> None:
    play.transcript.note("status", await play.node.stop(*signals))
    await play.node.start()


@SESSIONS.add("restart: a backlog in order", alone=True)
async def backlog(play: Play) -> None:
    await play.http("channel", "POST", "/topic/create?topic=kept")
    await play.http("channel", "POST", "/channel/create?topic=kept&channel=ch")
    producer = await play.connect("producer")
    await producer.say(b"MPUB kept\n" + messages(*(b"%d" % number for number in range(40))))
    await restarted(play)
    await play.http("after", "GET", "/stats?format=json&include_mem=false")
    await in_order(play, "kept", 40)


# A session of its own: nsqd's ids are unique within a topic, and two topics may share one.
@SESSIONS.add("restart: a backlog without a channel in order", alone=True)
async def bare_backlog(play: Play) -> None:
    await play.publish("bare", *(b"%d" % number for number in range(5)))
    await restarted(play)
    await play.http("after", "GET", "/stats?format=json&include_mem=false")
    await in_order(play, "bare", 5)


async def in_order(play: Play, topic: str, count: int) -> None:
    client = await play.subscriber(f"of {topic}", topic, ready=100)
    for _ in range(count):
        await client.frame()
    await client.quiet(0.3)


@SESSIONS.add("restart: in flight, requeued, deferred", alone=True)
async def states(play: Play) -> None:
    await play.publish("states", b"in flight")
    client = await play.subscriber("before", "states", ready=1)
    await client.frame()
    await play.stats("before", "states")
    await restarted(play)
    await client.rest()
    await play.stats("after", "states")
    again = await play.subscriber("after", "states", ready=10)
    await again.frame()
    await again.quiet(0.3)


@SESSIONS.add("restart: names and pauses", alone=True)
async def names(play: Play) -> None:
    for topic in ("bare", "paused", "with", "brief%23ephemeral"):
        await play.http("topic", "POST", f"/topic/create?topic={topic}")
    for channel in ("a", "b", "c%23ephemeral"):
        await play.http("channel", "POST", f"/channel/create?topic=with&channel={channel}")
    await play.http("pause", "POST", "/topic/pause?topic=paused")
    await play.http("pause", "POST", "/channel/pause?topic=with&channel=b")
    await play.publish("paused", b"x")
    await restarted(play)
    await play.http("after", "GET", "/stats?format=json&include_mem=false")
    await restarted(play, signal.SIGKILL)
    await play.http("after a kill", "GET", "/stats?format=json&include_mem=false")


@SESSIONS.add("restart: through disk", "--mem-queue-size=0", alone=True)
async def through_disk(play: Play) -> None:
    await play.publish("disk", *(b"%d" % number for number in range(20)))
    await play.stats("before", "disk")
    await restarted(play)
    client = await play.subscriber("consumer", "disk", ready=100)
    for _ in range(20):
        await client.frame()
    await play.stats("after", "disk")
