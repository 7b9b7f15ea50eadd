"""What ``srtm bench overhead`` sends: traffic that goes on to another broker, and traffic that stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import msgspec
import trio

from bench.harness.load.run import RunProgress, generator_of
from bench.harness.load.workload import Plan, Publishers, Subscriber
from srtm._native import LoadGen
from srtm.client.distributor import Json

BROKERS = 6
RATE, BURST = 110.0, 24.0  # of each topic
LOAD = 100.0  # msg/s of one whose traffic moves
STEADY_LOADS = range(1, 5)  # msg/s of the others, in turn: the engines carry that in half a core
_MOVING_PUBLISHERS = 10


def steady_load(number: int) -> float:
    """Msg/s of topic ``number``, if its traffic stays where it is."""
    return float(STEADY_LOADS[number % len(STEADY_LOADS)])


def topic_document(name: str, load: float) -> Json:
    """A publisher for each broker, so that it is on all; together they declare ``load`` msg/s."""
    return {
        "name": name,
        "rate": RATE,
        "burst": BURST,
        "mode": "static",
        "placement": "lb",
        "slo": {"percentile": 99, "latency_ms": 50},
        "publishers": [{"count": BROKERS, "rate": load / BROKERS, "id_prefix": f"{name}-"}],
    }


def part_of_traffic(topic: str, at: int, addresses: Sequence[str], seconds: float, seed: int) -> Plan:
    """All of a topic's traffic on broker ``at``, of publishers that it does not name."""
    return Plan(
        topic=topic,
        targets=[addresses[at]],
        publishers=_poisson(
            [f"moving-{number}" for number in range(_MOVING_PUBLISHERS)],
            [0] * _MOVING_PUBLISHERS,
            [LOAD / _MOVING_PUBLISHERS] * _MOVING_PUBLISHERS,
        ),
        subscribers=[Subscriber(target=0)],
        duration_s=seconds,
        warmup_s=0.0,
        drain_s=0.0,
        seed=seed,
    )


def steady_traffic(
    homes: Mapping[str, Mapping[str, str]], loads: Mapping[str, float], seconds: float, seed: int
) -> Plan:
    """Every topic's declared publishers where they belong, each as much of its load as the others. ``homes``: {topic:
    {publisher: address}}."""
    places = [(topic, publisher, address) for topic, at in homes.items() for publisher, address in at.items()]
    return Plan(
        topic=places[0][0],
        targets=[address for _, _, address in places],
        topics=[topic for topic, _, _ in places],
        publishers=_poisson(
            [publisher for _, publisher, _ in places],
            list(range(len(places))),
            [loads[topic] / len(homes[topic]) for topic, _, _ in places],
        ),
        subscribers=[Subscriber(target=target) for target in range(len(places))],
        duration_s=seconds,
        warmup_s=0.0,
        drain_s=0.0,
        seed=seed,
    )


def _poisson(ids: list[str], target: list[int], rate: list[float]) -> Publishers:
    size = len(ids)
    return Publishers(
        ids=ids, target=target, rate=rate, batch=[1] * size, group=[-1] * size, process=["poisson"] * size
    )


class Sent(NamedTuple):
    """Messages."""

    messages: int
    planned: float  # in the mean: traffic is Poisson

    def since(self, before: Sent) -> Sent:
        return Sent(self.messages - before.messages, self.planned - before.planned)


class Playing:
    """Generators of ``plans``, from the beginning of the block to its end."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._plans = plans
        self._generators: list[LoadGen] = []
        self._stops = ExitStack()

    def __enter__(self) -> Playing:
        with ExitStack() as stops:
            for plan in self._plans:
                generator = generator_of(plan)
                stops.callback(generator.stop)
                generator.start()
                self._generators.append(generator)
            self._stops = stops.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stops.close()

    def so_far(self) -> Sent:
        """From the first instant of each plan on: what comes before is connecting."""
        told = [msgspec.json.decode(one.progress(), type=RunProgress) for one in self._generators]
        due = (sum(plan.publishers.rate) * one.elapsed_s for plan, one in zip(self._plans, told, strict=True))
        return Sent(sum(one.sent for one in told), sum(due))


async def play(plans: Sequence[Plan], until_s: float) -> Sent:
    """All at once, stopped at ``until_s`` of trio's clock; what was sent by then."""
    with Playing(plans) as playing:
        await trio.sleep_until(until_s)
        return playing.so_far()
