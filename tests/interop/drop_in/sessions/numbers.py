"""What is counted, and when: ``/stats`` after each thing that can happen to a message."""

from __future__ import annotations

from tests.interop.drop_in.client import messages, sized
from tests.interop.drop_in.session import Play, Sessions, identification

SESSIONS = Sessions()


@SESSIONS.add("counters: a message's life")
async def life(play: Play) -> None:
    topic = "life"
    await play.publish(topic, b"one", b"two", b"three")
    await play.stats("published", topic)
    client = await play.subscriber("consumer", topic)
    await play.stats("subscribed", topic)
    await client.send(b"RDY 2\n")
    first, second = await client.frame(), await client.frame()
    await play.stats("two in flight", topic)
    if first is None or second is None:
        return
    await client.say(b"FIN " + first.ident + b"\nNOP\n")
    await play.stats("one finished", topic)
    await client.send(b"RDY 0\nREQ " + second.ident + b" 0\n")
    await client.say(b"PUB elsewhere\n" + sized(b"x"))
    await play.stats("one requeued", topic)
    await client.send(b"RDY 1\n")
    third = await client.frame()
    if third is None:
        return
    await client.send(b"RDY 0\nREQ " + third.ident + b" 600000\n")
    await client.say(b"PUB elsewhere\n" + sized(b"x"))
    await play.stats("one deferred", topic)
    await client.say(b"CLS\n")
    await play.stats("closing", topic)


@SESSIONS.add("counters: timeouts")
async def timeouts(play: Play) -> None:
    topic = "timing_out"
    await play.publish(topic, b"one")
    client = await play.subscriber("consumer", topic, ready=1, msg_timeout=3000)
    first = await client.frame()
    again = await client.frame()
    await play.stats("timed out once", topic)
    if first is None or again is None:
        return
    await client.send(b"FIN " + again.ident + b"\n")
    await client.say(b"PUB elsewhere\n" + sized(b"x"))
    await client.say(b"FIN " + again.ident + b"\n")
    await play.stats("finished", topic)


@SESSIONS.add("counters: producers", alone=True)
async def producers(play: Play) -> None:
    client = await play.connect("producer")
    await client.say(
        identification(client_id="p", hostname="h", user_agent="u", sample_rate=5, heartbeat_interval=5000)
    )
    await play.http("before", "GET", "/stats?format=json")
    await client.say(b"PUB made\n" + sized(b"12345"))
    await client.say(b"MPUB made\n" + messages(b"1", b"22"))
    await client.say(b"DPUB made 500000\n" + sized(b"x"))
    await play.http("after", "GET", "/stats?format=json")
    await play.http("its topic", "GET", "/stats?format=json&topic=made")
    await play.http("another topic", "GET", "/stats?format=json&topic=other")
    await play.http("without clients", "GET", "/stats?format=json&include_clients=false")
    await client.abort()


@SESSIONS.add("stats: filters", alone=True)
async def filters(play: Play) -> None:
    await play.http("nothing", "GET", "/stats?format=json")
    await play.http("no such topic at first", "GET", "/stats?format=json&topic=no")
    for topic, channels in {"one": ("a", "b"), "two": ("b",), "three": ()}.items():
        await play.http("create", "POST", f"/topic/create?topic={topic}")
        for channel in channels:
            await play.http("create", "POST", f"/channel/create?topic={topic}&channel={channel}")
    client = await play.subscriber("consumer", "one", "a")
    await play.publish("one", b"m")
    await play.settle()
    for query in (
        "", "topic=one", "topic=three", "topic=no", "channel=b", "channel=a", "channel=no", "topic=two&channel=a",
        "topic=one&channel=b", "include_clients=false", "include_clients=0", "include_clients=no", "include_clients=",
        "include_clients=true", "include_mem=false", "include_mem=0", "include_mem=maybe", "topic=&channel=",
        "topic=one&topic=two", "channel=b&include_clients=false", "topic=o%6Ee", "unknown=1",
    ):  # fmt: skip
        await play.http(query or "all", "GET", f"/stats?format=json&{query}")
    for label, query in {"format twice": "format=json&format=text", "upper case": "format=JSON"}.items():
        answer = await play.http(f"{label} ignored", "GET", f"/info?{query}")
        play.transcript.note(label, "JSON" if answer.startswith(b"{") else "text")
    await client.abort()


@SESSIONS.add("stats: a consumer", alone=True)
async def consumer(play: Play) -> None:
    client = await play.connect("consumer")
    await client.say(
        identification(
            client_id="c", hostname="h", user_agent="u", sample_rate=99, msg_timeout=3000, feature_negotiation=True,
            deflate=False, output_buffer_size=-1,
        )
    )  # fmt: skip
    await client.say(b"SUB t ch\n")
    await client.send(b"RDY 7\n")
    await client.say(b"PUB other\n" + sized(b"x"))
    await play.http("subscribed", "GET", "/stats?format=json")
    await client.say(b"CLS\n")
    await play.http("closing", "GET", "/stats?format=json")
    await client.abort()


@SESSIONS.add("counters: pause and empty")
async def pause(play: Play) -> None:
    topic = "pausing"
    client = await play.subscriber("consumer", topic, ready=2)
    await play.publish(topic, b"one")
    first = await client.frame()
    await play.http("pause", "POST", f"/channel/pause?topic={topic}&channel=ch")
    await play.publish(topic, b"two", b"three", b"four")
    await client.quiet(0.3)
    await play.stats("paused with one in flight", topic)
    if first is None:
        return
    await client.send(b"FIN " + first.ident + b"\n")
    await client.say(b"PUB elsewhere\n" + sized(b"x"))
    await play.stats("paused and finished", topic)
    await play.http("unpause", "POST", f"/channel/unpause?topic={topic}&channel=ch")
    second = await client.frame()
    await client.frame()
    await play.stats("unpaused", topic)
    await play.http("pause topic", "POST", f"/topic/pause?topic={topic}")
    await play.publish(topic, b"five")
    await play.stats("topic paused", topic)
    await play.http("empty channel", "POST", f"/channel/empty?topic={topic}&channel=ch")
    await play.stats("channel emptied", topic)
    if second is not None:
        await client.say(b"FIN " + second.ident + b"\n")
    await play.http("empty topic", "POST", f"/topic/empty?topic={topic}")
    await play.stats("topic emptied", topic)
    await play.http("unpause topic", "POST", f"/topic/unpause?topic={topic}")
    await play.publish(topic, b"six")
    await client.frame()
    await play.stats("going on", topic)
    await play.http("delete channel", "POST", f"/channel/delete?topic={topic}&channel=ch")
    await client.frame()
    await play.stats("without the channel", topic)


@SESSIONS.add("counters: fan-out")
async def fan_out(play: Play) -> None:
    topic = "fanned"
    await play.publish(topic, b"early", b"early too")
    await play.http("first channel", "POST", f"/channel/create?topic={topic}&channel=first")
    await play.http("second channel", "POST", f"/channel/create?topic={topic}&channel=second")
    await play.publish(topic, b"late")
    first = await play.subscriber("first", topic, "first", ready=10)
    second = await play.subscriber("second", topic, "second", ready=10)
    for _ in range(3):
        await first.frame()
    await second.frame()
    await play.stats("delivered", topic)
    await first.abort()
    await second.abort()


@SESSIONS.add("counters: DPUB")
async def deferred(play: Play) -> None:
    topic = "deferring"
    await play.http("channel", "POST", f"/topic/create?topic={topic}")
    client = await play.connect("producer")
    await client.say(b"DPUB deferring 100000\n" + sized(b"waits"))
    await play.stats("no channel", topic)
    await play.http("channel", "POST", f"/channel/create?topic={topic}&channel=ch")
    await play.publish(topic, b"now")
    consumer = await play.subscriber("consumer", topic, ready=5)
    await consumer.frame()
    await play.stats("deferred in the channel", topic)
    await play.http("with defer", "POST", f"/pub?topic={topic}&defer=50000", b"x")
    await play.stats("deferred by HTTP", topic)
    await play.http("empty", "POST", f"/channel/empty?topic={topic}&channel=ch")
    await play.stats("emptied", topic)
    await consumer.abort()


@SESSIONS.add("counters: from publish to FIN", "--e2e-processing-latency-percentile=0.5,0.99")
async def end_to_end(play: Play) -> None:
    topic = "measured"
    await play.publish(topic, b"one", b"two")
    client = await play.subscriber("consumer", topic, ready=2)
    await play.stats("nothing finished", topic)
    for _ in range(2):
        frame = await client.frame()
        if frame is not None:
            await client.send(b"FIN " + frame.ident + b"\n")
    await client.say(b"PUB elsewhere\n" + sized(b"x"))
    await play.stats("finished", topic)
