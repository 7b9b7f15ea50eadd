"""``srtm bench topic``: the traffic that a topic declares, sent to its own cluster by its own publishers.

Each publisher of the topic is an ``srtm.Publisher``: it goes where placement says, and moves when it is told to. The
loop is open: all instants are drawn before, from the topic's rates, processes, batches and groups, and nothing that a
broker does delays them. A message's latency runs from its intended instant to its receipt on a channel of the run.
"""

from __future__ import annotations

import resource
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import trio
from rich.console import Console

from bench.console.exit_status import NOT_VALID
from bench.harness.results.intervals import percentile_ms
from srtm.client.distributor import DistributorClient, Json
from srtm.client.publisher import Publisher
from srtm.client.subscriber import Subscriber
from srtm.concurrency.background import background_nursery
from srtm.console.output import table
from srtm.errors import BadInput, Conflict, PublishRefused, SrtmError, Unavailable
from srtm.text import figure, plural
from srtm.token_bucket.arrival_process import Sent, sent
from srtm.topics.spec import TopicSpec, parse_topic_json

_LEAD_S = 0.5  # from the last connection to the first intended instant
_AT_ONCE = 50  # connections that are opened side by side
_OTHER_FILES = 100  # descriptors beside those of publishers
_IN_FLIGHT = 2_500
_LATE_PART = 0.2  # of the promise, or of the latency at its percentile: a generator that is later is no judge
_SHORTEST_BODY = 32  # bytes: they name the run and the message
_PERCENTILES = (50.0, 95.0, 99.0, 99.9)
_COLUMNS = ("broker", "received", *(f"p{one:g} ms" for one in _PERCENTILES), "max ms")


@dataclass(frozen=True, kw_only=True)
class TopicRunOptions:
    """``anyway``: send although the topic has channels, whose consumers then get these messages too."""

    seconds: float = 30.0  # measured
    warmup_s: float = 2.0
    drain_s: float = 5.0  # for what is on its way after the last instant
    seed: int = 1
    body_bytes: int = 64
    anyway: bool = False


@dataclass
class Tally:
    """What became of each message. Arrays by message; s are since the first intended instant, NaN: never."""

    sent: Sent
    attempted_s: npt.NDArray[np.float64] = field(init=False)
    received_s: npt.NDArray[np.float64] = field(init=False)
    waited_ms: npt.NDArray[np.float64] = field(init=False)  # for tokens, by the receipt
    broker: npt.NDArray[np.int64] = field(init=False)  # index into ``brokers``; -1: not received
    brokers: list[str] = field(default_factory=list)  # addresses
    refused: int = 0
    duplicates: int = 0
    strange: int = 0  # messages of somebody else
    moves: int = 0
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        count = len(self.sent)
        self.attempted_s, self.received_s, self.waited_ms = (np.full(count, np.nan) for _ in range(3))
        self.broker = np.full(count, -1)
        self._open = count  # neither received nor refused
        self.over = trio.Event()
        self._settle(0)

    @property
    def intended_s(self) -> npt.NDArray[np.float64]:
        return self.sent.arrival_ns / 1e9

    def note_received(self, message: int, at_s: float, address: str) -> None:
        """Note the first receipt of a message."""
        if not np.isnan(self.received_s[message]):
            self.duplicates += 1
            return
        if address not in self.brokers:
            self.brokers.append(address)
        self.received_s[message], self.broker[message] = at_s, self.brokers.index(address)
        self._settle(1)

    def note_refused(self) -> None:
        """Note that a broker refused a message."""
        self.refused += 1
        self._settle(1)

    def _settle(self, count: int) -> None:
        self._open -= count
        if self._open == 0:
            self.over.set()


async def run_topic(
    client: DistributorClient,
    name: str,
    options: TopicRunOptions,
    say: Callable[[str], object],
    *,
    publisher: Callable[..., Any] = Publisher,
    subscriber: Callable[..., Any] = Subscriber,
) -> tuple[TopicSpec, Tally]:
    """Send what the topic declares, and return it with what became of it.

    Raises NotFound, Conflict (it has channels), BadInput (nobody publishes), Unavailable.
    """
    view = await client.topic(name)
    if view.get("channels") and not options.anyway:
        raise Conflict("topic", name, f"has channels ({', '.join(view['channels'])}), which would get these messages")
    spec = parse_topic_json(await client.document(name))
    traffic = sent(spec.publishers, options.warmup_s + options.seconds, options.seed)
    if not len(traffic):
        raise BadInput("topic", name, "declares no publisher that sends in this time: add some, or take more seconds")
    who = sorted(set(traffic.publisher.tolist()))
    _allow_files(len(who))
    say(
        f"{name}: {len(traffic):,} messages of {len(who):,} {plural(len(who), 'publisher')}, "
        f"{figure(len(traffic) / traffic.seconds, 6)} msg/s; {figure(options.warmup_s)} s of warm-up, "
        f"{figure(options.seconds, 6)} s measured"
    )
    tally = Tally(traffic)
    run = secrets.token_hex(4)
    channel = f"bench-{run}#ephemeral"
    async with (
        subscriber(name, channel, distributor=client, max_in_flight=_IN_FLIGHT, auto_finish=True) as reader,
        background_nursery() as nursery,
    ):
        publishers = {
            index: publisher(name, spec.publishers[index].id, distributor=client, max_outstanding=1_000_000)
            for index in who
        }
        await _enter(nursery, list(publishers.values()))
        starts_s = trio.current_time() + _LEAD_S
        nursery.start_soon(_receive, reader, run, tally, starts_s)
        addresses = {index: one.address for index, one in publishers.items()}
        await _send(nursery, publishers, addresses, tally, starts_s, run, options.body_bytes)
        with trio.move_on_after(options.drain_s):
            await tally.over.wait()
    return spec, tally


def _allow_files(publishers: int) -> None:
    """Let this process open so many connections. Raises Unavailable."""
    needed = publishers + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if needed > hard:
        raise Unavailable(f"{publishers:,} publishers need {needed:,} open files, and this process may have {hard:,}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))


async def _enter(nursery: trio.Nursery, publishers: list[Any]) -> None:
    """Connect all; they stay until ``nursery`` is cancelled."""
    limit = trio.CapacityLimiter(_AT_ONCE)

    async def hold(publisher: Any, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with publisher:
            task_status.started()
            await trio.sleep_forever()

    async def connect(publisher: Any) -> None:
        async with limit:
            await nursery.start(hold, publisher)

    async with trio.open_nursery() as connecting:
        for publisher in publishers:
            connecting.start_soon(connect, publisher)


async def _send(
    nursery: trio.Nursery,
    publishers: dict[int, Any],
    addresses: dict[int, str | None],
    tally: Tally,
    starts_s: float,
    run: str,
    body_bytes: int,
) -> None:
    """Hand each message over at its instant, whatever became of those before it."""

    async def publish(message: int, index: int) -> None:
        publisher = publishers[index]
        tally.attempted_s[message] = trio.current_time() - starts_s
        try:
            receipt = await publisher.publish(f"{run} {message}".encode().ljust(max(body_bytes, _SHORTEST_BODY)))
        except PublishRefused:
            tally.note_refused()
        except SrtmError as error:
            tally.errors.append(str(error))
        else:
            tally.waited_ms[message] = np.nan if receipt.wait_ms is None else receipt.wait_ms
            if publisher.address not in (addresses[index], None):
                tally.moves += 1
                addresses[index] = publisher.address

    instants = zip(tally.intended_s.tolist(), tally.sent.publisher.tolist(), strict=True)
    for message, (at_s, index) in enumerate(instants):
        if starts_s + at_s > trio.current_time():
            await trio.sleep_until(starts_s + at_s)
        nursery.start_soon(publish, message, index)


async def _receive(reader: Any, run: str, tally: Tally, starts_s: float) -> None:
    async for delivery in reader:
        words = delivery.body.split()
        if len(words) == 2 and words[0] == run.encode() and int(words[1]) < len(tally.sent):
            tally.note_received(int(words[1]), trio.current_time() - starts_s, delivery.broker)
        else:
            tally.strange += 1


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What a run found. ``reasons``: why it says nothing; none: it does."""

    kept: bool
    reasons: list[str]
    result: Json

    @property
    def exit_status(self) -> int:
        """0: the promise is kept; 1: broken; 3: the run is not valid."""
        if self.reasons:
            return NOT_VALID
        return 0 if self.kept else 1


def judge(name: str, spec: TopicSpec, tally: Tally, options: TopicRunOptions) -> Judged:
    """Judge the measured part, from the end of the warm-up on."""
    measured = tally.intended_s >= options.warmup_s
    latency_s = tally.received_s - tally.intended_s
    there = measured & ~np.isnan(latency_s)
    late_ms = percentile_ms(_ns((tally.attempted_s - tally.intended_s)[measured]), 99.0)
    promised_ms = percentile_ms(_ns(latency_s[there]), spec.slo.percentile)
    lost = len(tally.sent) - int(np.count_nonzero(~np.isnan(tally.received_s))) - tally.refused
    result: Json = {
        "topic": name,
        "promise": {"percentile": spec.slo.percentile, "latency_ms": spec.slo.latency_ms},
        "latency_ms": promised_ms if there.any() else None,
        "sent": len(tally.sent),
        "refused": tally.refused,
        "lost": lost,
        "duplicates": tally.duplicates,
        "strange": tally.strange,
        "moves": tally.moves,
        "lateness_p99_ms": late_ms,
        "token_wait_ms": _percentiles(tally.waited_ms[there] / 1e3),
        "all": _percentiles(latency_s[there]),
        "brokers": [
            {"broker": address, **_percentiles(latency_s[there & (tally.broker == at)])}
            for at, address in enumerate(tally.brokers)
        ],
        "errors": sorted(set(tally.errors))[:5],
    }
    kept = bool(there.any()) and promised_ms <= spec.slo.latency_ms
    reasons = _reasons(tally, lost, late_ms, max(spec.slo.latency_ms, promised_ms), bool(there.any()))
    return Judged(kept=kept, reasons=reasons, result={**result, "kept": kept, "valid": not reasons, "reasons": reasons})


def _reasons(tally: Tally, lost: int, late_ms: float, bound_ms: float, any_received: bool) -> list[str]:
    reasons = []
    if not any_received:
        reasons.append("no measured message was received")
    if lost:
        reasons.append(f"{lost:,} of {len(tally.sent):,} messages were neither refused nor received")
    if late_ms > _LATE_PART * bound_ms:
        limit = f"{_LATE_PART:.0%} of {figure(bound_ms)} ms"
        reasons.append(
            f"the generator was late by {figure(late_ms)} ms (p99), over {limit}: `srtm bench run` carries more"
        )
    return reasons


def _ns(seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    return np.round(seconds * 1e9).astype(np.int64)


def _percentiles(seconds: npt.NDArray[np.float64]) -> Json:
    """Return the count of what is known, and its percentiles in ms; null of nothing."""
    known = _ns(seconds[~np.isnan(seconds)])
    found = {f"p{one:g}_ms": percentile_ms(known, one) if len(known) else None for one in _PERCENTILES}
    return {"count": len(known), **found, "max_ms": float(known.max()) / 1e6 if len(known) else None}


def show_judged(judged: Judged, console: Console) -> None:
    """Print what a run found."""
    result = judged.result

    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    rows = [[*found.values()] for found in [*result["brokers"], {"broker": "all", **result["all"]}]]
    console.print(table(f"{result['topic']}: latency from the intended instants", _COLUMNS, rows))
    say(
        f"{result['sent']:,} sent, {result['refused']:,} refused, {result['lost']:,} lost, "
        f"{result['duplicates']:,} received twice; {result['moves']:,} {plural(result['moves'], 'move')}; "
        f"the generator was late by p99 {figure(result['lateness_p99_ms'])} ms"
    )
    if result["token_wait_ms"]["count"]:
        say(f"wait for tokens, as the receipts foretold it: p99 {figure(result['token_wait_ms']['p99_ms'])} ms")
    for text in result["errors"]:
        say(f"error: {text}")
    if result["latency_ms"] is not None:
        promise = result["promise"]
        word = "kept" if judged.kept else "BROKEN"
        say(
            f"p{promise['percentile']:g} {figure(result['latency_ms'])} ms, promised "
            f"{figure(promise['latency_ms'], 6)} ms: {word}"
        )
    for reason in judged.reasons:
        say(f"not valid: {reason}")
