"""The data sets A to D of the CRDT thesis (section 4.3.4), fabricated: its own are recordings of a real service.

The shape is as told there: users, requests in bursts ``c``, length. Instants are drawn at random, in whole ms. A
request goes to the node that its user and its ms hash to, so requests of one user in one ms meet at one node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from random import Random

from limiting.replication.gossiped.gossip import MS
from limiting.replication.refill import Refill, Subject
from srtm.units import MICRO

SECOND = 1_000 * MS
NODES = 30
BURST = 300  # c: the thesis does not print it
RATE_PART = 0.001  # of c, tokens/s
USERS_OF_C = 100  # of 5,000: users share nothing but frames, so costs are told for each


@dataclass(frozen=True, slots=True)
class Request:
    """At an instant, ns, by a user, at a node."""

    at_ns: int
    subject: Subject
    node: int


@dataclass(frozen=True, kw_only=True)
class RequestSet:
    """Requests in order. ``interval_ns``: of gossip; ``users``: by whose number costs are divided."""

    name: str
    requests: Sequence[Request]
    refill: Refill
    interval_ns: int = 300 * MS
    users: int = 1

    @property
    def ends_ns(self) -> int:
        return self.requests[-1].at_ns


def user(number: int) -> Subject:
    """A digest, as of any subject: shared places have names that digests do not have."""
    return blake2b(number.to_bytes(8, "big"), digest_size=16).digest()


def node_of(at_ms: int, subject: Subject) -> int:
    """Where a request goes (section 4.3.1)."""
    digest = blake2b(subject + at_ms.to_bytes(8, "big"), digest_size=4).digest()
    return int.from_bytes(digest, "big") % NODES


def bucket(burst: int, rate: float) -> Refill:
    return Refill(rate_micro=round(rate * MICRO), burst_micro=burst * MICRO)


def made(name: str, times: dict[int, list[float]], refill: Refill, **more: int) -> RequestSet:
    """``times``: {number of a user: instants in s}."""
    requests = []
    for number, instants in times.items():
        subject = user(number)
        for at_ms in sorted(round(at_s * 1_000) for at_s in instants):
            requests.append(Request(at_ms * MS, subject, node_of(at_ms, subject)))
    requests.sort(key=lambda one: (one.at_ns, one.subject))
    return RequestSet(name=name, requests=requests, refill=refill, **more)


def spread(chance: Random, count: int, seconds: float, begin: float = 0.0) -> list[float]:
    return [chance.uniform(begin, begin + seconds) for _ in range(count)]


def one_user(name: str, part: float, chance: Random) -> RequestSet:
    """Set B: ``part`` of c in a minute."""
    return made(name, {0: spread(chance, round(part * BURST), 60.0)}, bucket(BURST, RATE_PART * BURST))


def extreme(chance: Random) -> RequestSet:
    return one_user("B extreme, 21.5 c", 21.5, chance)


def substantial(chance: Random) -> RequestSet:
    return one_user("B substantial, 3.2 c", 3.2, chance)


def barely_even(chance: Random) -> RequestSet:
    return one_user("B barely, 1.1 c, even", 1.1, chance)


def barely_late(chance: Random) -> RequestSet:
    """A third of the requests come in the last 4 s: this is where 80 and 10 % part."""
    count = round(1.1 * BURST)
    times = [*spread(chance, count - count // 3, 56.0), *spread(chance, count // 3, 4.0, 56.0)]
    return made("B barely, 1.1 c, a third in the last 4 s", {0: times}, bucket(BURST, RATE_PART * BURST))


def not_limited(chance: Random) -> RequestSet:
    """A little slower than the bucket refills, for two minutes."""
    gap_s = 1.02 / (RATE_PART * BURST)
    times = [number * gap_s for number in range(int(120 / gap_s))]
    shift = chance.uniform(0, 1)
    return made("B not limited", {0: [shift + at_s for at_s in times]}, bucket(BURST, RATE_PART * BURST))


def ten_users(chance: Random) -> RequestSet:
    """Set A: 68.3 c in 5 min by ten users that are all limited; c = 100, so that a run takes a minute."""
    burst, least, total = 100, 1.5, 68.3
    weights = [0.7**number for number in range(10)]
    parts = [least + (total - 10 * least) * weight / sum(weights) for weight in weights]
    times = {number: spread(chance, round(part * burst), 300.0) for number, part in enumerate(parts)}
    return made("A, 10 users, 68.3 c", times, bucket(burst, RATE_PART * burst), users=10)


def many_users(chance: Random) -> RequestSet:
    """Set C: an hour of users that ask 11 times on average, few of them often: none above the limit."""
    times = {}
    for number in range(USERS_OF_C):
        count = 1 + int(min(500.0, chance.lognormvariate(1.6, 1.2)))
        begin = chance.uniform(0, 3_000)
        times[number] = spread(chance, count, min(600.0, 3_600 - begin), begin)
    return made("C, an hour, per user", times, bucket(BURST, RATE_PART * BURST), users=USERS_OF_C)


def steady(interval_ms: int) -> Callable[[Random], RequestSet]:
    """Set D: one request every 0.9 s for 100 s; c = 5, r = 1 token/s."""

    def of(chance: Random) -> RequestSet:
        shift = chance.uniform(0, 0.3)
        instants = [shift + 0.9 * number for number in range(111)]
        return made(f"D, gossip every {interval_ms} ms", {0: instants}, bucket(5, 1.0), interval_ns=interval_ms * MS)

    return of


SETS: dict[str, Callable[[Random], RequestSet]] = {
    "A": ten_users,
    "B extreme": extreme,
    "B substantial": substantial,
    "B barely even": barely_even,
    "B barely late": barely_late,
    "B not limited": not_limited,
    "C": many_users,
    **{f"D {interval_ms}": steady(interval_ms) for interval_ms in (300, 450, 900)},
}
