"""The cluster of ``srtm bench overhead`` with its topics, on which turns are played."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from bench.experiments.overhead.counters import Counts, counts_of
from bench.experiments.overhead.cpu import PARTS, spent_ms
from bench.experiments.overhead.traffic import (
    BROKERS,
    LOAD,
    Playing,
    Sent,
    part_of_traffic,
    play,
    steady_load,
    steady_traffic,
    topic_document,
)
from bench.experiments.overhead.turn import SHIFTING, STEADY, OverheadOptions, Turn
from bench.harness.cluster_runs.assigned_traffic import settled
from srtm.client.distributor import DistributorClient
from srtm.cluster.supervisor import Cluster, cluster
from srtm.errors import Unavailable
from srtm.net.http_client import HttpClient

_MCAP = 50_000.0
_AT_ONCE = 4  # topics that are made or changed at a time; the distributor places one after the other
_READY_S = 120.0
_ATTEMPTS = 5  # at a topic
# Before what counts. Under fitted, rare messages too are known to be steady 12 s after the first one; under either mode
# until brokers' windows of 60 s are full, from when on reports also change by what leaves them.
_SETTLE_S = {STEADY: 65.0, SHIFTING: 5.0}
# Then until what is told of steady traffic is next to nothing: by so many topics and brokers one history at most.
_QUIET_S = 5.0
_QUIET_SHARE = 0.01
_LONGEST_SETTLE_S = 150.0


class Stage:
    """The cluster with its topics, on which turns are played."""

    def __init__(self, running: Cluster, client: DistributorClient, options: OverheadOptions) -> None:
        self._running = running
        self._client = client
        self._options = options
        names = [f"topic-{number}" for number in range(options.topics)]
        self._moving = names[: options.moving]
        self._loads = {name: steady_load(number) for number, name in enumerate(names) if number >= options.moving}
        self._names = names
        self._mode = "static"
        self._addresses = {place.name: place.tcp_address for place in running.brokers}

    async def make_topics(self) -> None:
        """Raises Unavailable."""

        await _for_each(self._names, self._make)
        await _for_each(self._names, partial(settled, self._client, brokers=BROKERS, within_s=_READY_S))

    async def _make(self, name: str) -> None:
        """On all brokers: where the machine is busy one may not have been heard from for a while, and gets nothing."""
        for _ in range(_ATTEMPTS):
            view = await self._client.create_or_change_topic(name, topic_document(name, self._loads.get(name, LOAD)))
            if len(view["brokers"]) == BROKERS:
                return
            await self._client.remove_topic(name)
        raise Unavailable(f"topic {name} got no place on all {BROKERS} brokers, {_ATTEMPTS} times")

    async def set_mode(self, mode: str) -> None:
        if mode != self._mode:
            await _for_each(self._names, lambda name: self._client.set_options(name, {"mode": mode}))
            self._mode = mode

    async def turn(self, scenario: str, mode: str, number: int) -> Turn:
        """Raises Unavailable."""
        seed = self._options.seed * 1_000_000 + number * 10_000
        play_turn = self._steady if scenario == STEADY else self._shifting
        before, after, sent = await play_turn(seed, _SETTLE_S[scenario])
        took_s = after.at_s - before.at_s
        counts = after.counts.since(before.counts, took_s)
        return Turn(
            scenario=scenario,
            mode=mode,
            number=number,
            changes=counts.changes,
            histories=counts.histories,
            bins=counts.bins,
            sent=sent.messages,
            planned=round(sent.planned),
            **{part: (after.spent[part] - before.spent[part]) / took_s for part in PARTS},
        )

    async def _steady(self, seed: int, settle_s: float) -> tuple[Moment, Moment, Sent]:
        """Beginning and end of what counts, what was sent in between; so does the next one."""
        homes = {name: await self._homes(name) for name in self._loads}
        lasting_s = _LONGEST_SETTLE_S + self._options.seconds + _READY_S
        with Playing([steady_traffic(homes, self._loads, lasting_s, seed)]) as playing:
            await trio.sleep(settle_s)
            await self._until_quiet(trio.current_time() + _LONGEST_SETTLE_S - settle_s)
            before, sent = await self._begin(), playing.so_far()
            await trio.sleep(self._options.seconds)
            sent = playing.so_far().since(sent)
            return before, await self._end(), sent

    async def _shifting(self, seed: int, settle_s: float) -> tuple[Moment, Moment, Sent]:
        await trio.sleep(settle_s)
        addresses, every_s = list(self._addresses.values()), self._options.every_s
        before, legs = await self._begin(), []
        for leg in range(round(self._options.seconds / every_s)):
            plans = [
                part_of_traffic(topic, (at + leg) % BROKERS, addresses, every_s, seed + leg * 100 + at)
                for at, topic in enumerate(self._moving)
            ]
            legs.append(await play(plans, before.at_s + (leg + 1) * every_s))
        return before, await self._end(), Sent(sum(one.messages for one in legs), sum(one.planned for one in legs))

    async def _until_quiet(self, latest_s: float) -> None:
        """Hardly any histories come, or it is ``latest_s`` of trio's clock: a turn says how many came in it."""
        most = _QUIET_SHARE * len(self._names) * BROKERS
        before = await _counts(self._running)
        while trio.current_time() < latest_s:
            await trio.sleep(_QUIET_S)
            now = await _counts(self._running)
            if sum(now.histories.values()) - sum(before.histories.values()) <= most:
                return
            before = now

    async def _begin(self) -> Moment:
        """Asking for counts costs the distributor more than a moment's work: before the one, after the other."""
        counts = await _counts(self._running)
        return Moment(trio.current_time(), spent_ms(self._running), counts)

    async def _end(self) -> Moment:
        at_s, spent = trio.current_time(), spent_ms(self._running)
        return Moment(at_s, spent, await _counts(self._running))

    async def _homes(self, name: str) -> Mapping[str, str]:
        """{publisher: address of its broker}."""
        listed = await self._client.publishers(name)
        return {
            publisher: self._addresses[broker]
            for publisher, broker in zip(listed["ids"], listed["brokers"], strict=True)
        }


@dataclass(frozen=True)
class Moment:
    """What had been so far."""

    at_s: float  # trio time
    spent: Mapping[str, float]  # ms
    counts: Counts


async def _counts(running: Cluster) -> Counts:
    client = HttpClient(running.distributor)
    try:
        _, body = await client.request("GET", "/metrics", timeout_s=_READY_S)
    finally:
        await client.aclose()
    return counts_of(body.decode())


async def _for_each(names: Sequence[str], do: Callable[[str], Awaitable[object]]) -> None:
    """A few at a time."""
    queue = iter(names)

    async def work() -> None:
        for name in queue:
            await do(name)

    async with trio.open_nursery() as nursery:
        for _ in range(_AT_ONCE):
            nursery.start_soon(work)


@asynccontextmanager
async def small_cluster() -> AsyncIterator[tuple[Cluster, DistributorClient]]:
    with tempfile.TemporaryDirectory(prefix="srtm-overhead-") as folder:
        async with (
            cluster(brokers=BROKERS, mcap=_MCAP, data=Path(folder)) as running,
            DistributorClient(running.distributor, timeout_s=_READY_S) as client,
        ):
            yield running, client
