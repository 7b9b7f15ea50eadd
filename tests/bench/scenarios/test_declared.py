"""``srtm bench topic``, with played clients in simulated time: the loop is open, and every message is accounted for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np
import pytest
import trio
from rich.console import Console

from bench.scenarios.declared import Judged, TopicRunOptions, judge, run_topic, show_judged
from srtm.errors import BadInput, Conflict, PublishRefused
from srtm.protocol import Receipt
from srtm.token_bucket.arrival_process import sent
from srtm.topics.spec import parse_topic_json

DOCUMENT = {
    "name": "roads",
    "rate": 100.0,
    "burst": 10,
    "slo": {"percentile": 99, "latency_ms": 50},
    "publishers": [{"count": 4, "rate": 10, "group_size": 2, "id_prefix": "p-"}],
}
OPTIONS = TopicRunOptions(seconds=10.0, warmup_s=1.0, drain_s=3.0, seed=7)


@dataclass
class Delivery:
    body: bytes
    broker: str


@dataclass
class Cluster:
    """One broker: ``answer`` says what becomes of a message that a publisher sends."""

    answer: Callable[[Cluster, bytes], Any]
    channels: list[str] = field(default_factory=list)
    document_: dict[str, Any] = field(default_factory=lambda: DOCUMENT)
    at_s: list[tuple[float, str]] = field(default_factory=list)  # each message: when, and of whom
    address: str = "b1:4150"

    def __post_init__(self) -> None:
        self.deliver, self._delivered = trio.open_memory_channel[Delivery](float("inf"))

    async def topic(self, name: str) -> dict[str, Any]:
        return {"name": name, "channels": self.channels}

    async def document(self, _name: str) -> dict[str, Any]:
        return self.document_

    def publisher(self, _topic: str, publisher_id: str, **_: object) -> Publisher:
        return Publisher(self, publisher_id)

    def subscriber(self, _topic: str, channel: str, **_: object) -> Cluster:
        assert channel.endswith("#ephemeral")
        return self

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def __aiter__(self) -> Cluster:
        return self

    async def __anext__(self) -> Delivery:
        return await self._delivered.receive()

    async def run(self, options: TopicRunOptions = OPTIONS) -> Judged:
        said: list[str] = []
        spec, tally = await run_topic(
            self,  # type: ignore[arg-type]
            "roads",
            options,
            said.append,
            publisher=self.publisher,
            subscriber=self.subscriber,
        )
        assert "of 4 publishers" in said[0]
        return judge("roads", spec, tally, options)


@dataclass
class Publisher:
    cluster: Cluster
    publisher_id: str

    async def __aenter__(self) -> Publisher:
        return self

    async def __aexit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    @property
    def address(self) -> str:
        return self.cluster.address

    async def publish(self, body: bytes) -> Receipt:
        self.cluster.at_s.append((trio.current_time(), self.publisher_id))
        receipt: Receipt = await self.cluster.answer(self.cluster, body)
        return receipt


async def at_once(cluster: Cluster, body: bytes) -> Receipt:
    await trio.sleep(0.01)
    await cluster.deliver.send(Delivery(body, cluster.address))
    return Receipt(wait_ms=2.0)


async def test_what_is_declared_is_sent_at_drawn_instants_and_the_promise_judged(autojump_clock: object) -> None:
    cluster = Cluster(at_once)
    judged = await cluster.run()
    drawn = sent(parse_topic_json(DOCUMENT).publishers, 11.0, seed=7)
    times_s = np.array([at for at, _ in cluster.at_s])
    assert np.allclose(np.diff(times_s), np.diff(drawn.arrival_ns / 1e9), atol=1e-6)
    together = [sorted(who for at, who in cluster.at_s if at == instant) for instant in dict.fromkeys(times_s.tolist())]
    intended = [
        sorted(f"p-{index}" for index in drawn.publisher[drawn.arrival_ns == instant].tolist())
        for instant in dict.fromkeys(drawn.arrival_ns.tolist())
    ]
    assert together == intended
    assert (judged.exit_status, judged.kept, judged.reasons) == (0, True, [])
    assert judged.result["all"]["p99_ms"] == pytest.approx(10.0, abs=0.01)
    assert judged.result["all"]["count"] == int(np.count_nonzero(drawn.arrival_ns >= 10**9))
    assert judged.result["brokers"] == [{"broker": "b1:4150", **judged.result["all"]}]
    assert judged.result["token_wait_ms"]["p99_ms"] == pytest.approx(2.0)


async def test_a_broker_that_answers_nobody_delays_no_message_and_all_are_lost(autojump_clock: object) -> None:
    async def never(cluster: Cluster, body: bytes) -> Receipt:
        await trio.sleep_forever()
        raise AssertionError

    cluster = Cluster(never)
    judged = await cluster.run()
    drawn = sent(parse_topic_json(DOCUMENT).publishers, 11.0, seed=7)
    assert len(cluster.at_s) == len(drawn) == judged.result["lost"]
    assert judged.exit_status == 3
    assert judged.result["latency_ms"] is None
    assert judged.reasons[0] == "no measured message was received"


async def test_a_late_broker_breaks_the_promise(autojump_clock: object) -> None:
    async def late(cluster: Cluster, body: bytes) -> Receipt:
        await trio.sleep(0.2)
        return await at_once(cluster, body)

    judged = await Cluster(late).run()
    assert (judged.exit_status, judged.kept) == (1, False)
    assert judged.result["latency_ms"] == pytest.approx(210.0, abs=0.01)


async def test_refused_moved_repeated_and_strange_messages_are_counted(autojump_clock: object) -> None:
    numbers = iter(range(1_000_000))

    async def mixed(cluster: Cluster, body: bytes) -> Receipt:
        number = next(numbers)
        if number == 3:
            raise PublishRefused("over its limit", 5.0)
        if number == 5:
            await cluster.deliver.send(Delivery(b"of somebody else", "b9:1"))
            await cluster.deliver.send(Delivery(body, cluster.address))
        if number == 200:
            cluster.address = "b2:4150"
        return await at_once(cluster, body)

    result = (await Cluster(mixed).run()).result
    assert {key: result[key] for key in ("refused", "lost", "duplicates", "strange", "moves")} == {
        "refused": 1,
        "lost": 0,
        "duplicates": 1,
        "strange": 1,
        "moves": 4,
    }
    assert [row["broker"] for row in result["brokers"]] == ["b1:4150", "b2:4150"]


async def test_consumers_are_not_given_invented_messages_unless_asked_to(autojump_clock: object) -> None:
    cluster = Cluster(at_once, channels=["archive"])
    with pytest.raises(Conflict, match=r"has channels \(archive\), which would get these messages"):
        await cluster.run()
    assert cluster.at_s == []
    assert (await cluster.run(TopicRunOptions(seconds=1.0, warmup_s=0.0, anyway=True))).result["sent"] > 0


async def test_a_topic_of_which_nobody_sends_is_refused(autojump_clock: object) -> None:
    nobody = {**DOCUMENT, "publishers": []}
    with pytest.raises(BadInput, match="declares no publisher that sends in this time"):
        await Cluster(at_once, document_=nobody).run()


async def test_what_was_found_is_shown_in_80_columns(autojump_clock: object) -> None:
    judged = await Cluster(at_once).run()
    console = Console(width=80)
    with console.capture() as capture:
        show_judged(judged, console)
    lines = capture.get().splitlines()
    assert any(line.startswith("p99 10 ms, promised 50 ms: kept") for line in lines)
    assert max(len(line) for line in lines if "|" in line) <= 80
