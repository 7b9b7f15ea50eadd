"""A run of ``docs/model/leases.pml``, step by step through the code that it is a model of:
``distributor/model/leases.py``, ``broker/leases/lease_holder.py``. What the model says after each step must be what
the code says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from distributor.model.leases import MICRO, NOTHING, Amount, Holding, Leases
from srtm.control import DesiredTopic, Share, SyncAnswer
from tests.support.lease_world import MS, Answer, BrokerProcess, Clock, Request

UNITS = 2  # K of the model
UNIT = Amount(50 * MICRO, 10 * MICRO)
LEASE_TICKS = 2  # L
TICK_MS = 2_500


def amount(units: int) -> Amount:
    return Amount(units * UNIT.rate, units * UNIT.burst)


def units(of: Amount) -> int:
    assert of == amount(of.rate // UNIT.rate)
    return of.rate // UNIT.rate


def steps(run: str) -> list[tuple[str, list[int]]]:
    """(step, what the model says after it), from what ``spin`` prints."""
    lines = [line.strip() for line in run.splitlines() if line.strip()]
    told = [line for line in lines if line[0] == "=" or line.split()[0] in _STEPS]
    pairs = zip(told[::2], told[1::2], strict=False)  # spin may have been cut short in the middle of a step
    return [(step, [int(word) for word in after.replace("|", "").split()[1:]]) for step, after in pairs]


_STEPS = {"send", "lose", "hear", "take", "drop", "stop", "go_on", "kill", "restart", "prove", "lapse", "aim", "share",
          "tick", "takeover", "store"}  # fmt: skip


@dataclass
class Replay:
    """Two brokers, and one distributor's store. ``timed``: whether shares end by themselves; ``forgotten``: takeovers
    that knew less than was acknowledged."""

    timed: bool
    now_ns: int = 0
    version: int = 0
    known: list[int] = field(default_factory=lambda: [0, 0])
    unheld: list[int] = field(default_factory=lambda: [0, 0])  # version of "no share here"
    silent_ticks: list[int] = field(default_factory=lambda: [0, 0])
    forgotten: int = 0
    asked: dict[int, Request] = field(default_factory=dict)
    answers: dict[tuple[int, int], Answer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.leases = Leases(amount(UNITS), lease_ms=LEASE_TICKS * TICK_MS if self.timed else None)
        self.stored = self.leases
        self.lives = [1, 1]
        self.up: list[BrokerProcess | None] = [self._start(0), self._start(1)]

    def close(self) -> None:
        for broker in self.up:
            if broker is not None:
                broker.close()

    def run(self, recorded: Iterable[tuple[str, list[int]]]) -> None:
        for number, (step, expected) in enumerate(recorded):
            self.do(step)
            assert self.state() == expected, f"after step {number}: {step}"

    def state(self) -> list[int]:
        held = [self.leases.holdings.get(str(b)) or Holding(self.unheld[b], NOTHING, NOTHING) for b in (0, 1)]
        shown = [value for one in held for value in (one.version, units(one.share), units(one.bound))]
        return [units(broker.share) if broker else 0 for broker in self.up] + shown

    def do(self, step: str) -> None:
        what, *words = step.split()
        b = int(words[0]) if words else -1
        match what:
            case "tick":
                self.now_ns += TICK_MS * MS
                self.silent_ticks = [ticks + 1 for ticks in self.silent_ticks]
            case "takeover":
                self.silent_ticks = [0, 0]
                self.forgotten += self.leases != self.stored
                self.leases = self.stored
            case "store":
                self.stored = self.leases
            case "send":
                self.asked[b] = self._broker(b).request()
            case "lose":
                del self.asked[b]
            case "hear":
                self._hear(b, waits=words[1] == "waits", slot=int(words[2]))
            case "take":
                self._broker(b).take(self.answers[b, int(words[1])])
            case "drop":
                del self.answers[b, int(words[1])]
            case "kill":
                self._broker(b).close()
                self.up[b] = None
            case "restart":
                self.lives[b] += 1
                self.up[b] = self._start(b)
            case "prove" | "lapse":
                self._free(b, lapsed=what == "lapse")
            case "aim":
                self._aim({str(b): amount(UNITS)})
            case "share":
                self._aim({"0": UNIT, "1": UNIT})

    def _start(self, b: int) -> BrokerProcess:
        return BrokerProcess(str(b), self.lives[b], Clock(lambda: self.now_ns), None)

    def _broker(self, b: int) -> BrokerProcess:
        broker = self.up[b]
        assert broker is not None
        return broker

    def _hear(self, b: int, *, waits: bool, slot: int) -> None:
        request, name = self.asked[b], str(b)
        self.silent_ticks[b] = 0
        if request.incarnation > self.known[b]:
            if self.known[b] and name in self.leases.holdings:
                self._change(self.leases.reissued(name, self.version + 1))
            self.known[b] = request.incarnation
        else:
            self.leases = self.leases.acknowledged(name, request.applied.get("t", 0))
        self._advance(waits=waits)
        if not self.leases.issues_same_as(self.stored):
            self.stored = self.leases
        held = self.leases.holdings.get(name) or Holding(self.unheld[b], NOTHING, NOTHING)
        lease_s = None if held.lease_ms is None else held.lease_ms / 1000
        rate, burst = held.share.rate / MICRO, held.share.burst / MICRO
        share = Share(version=held.version, rate=rate, burst=burst, full=held.full, lease_s=lease_s)
        answer = SyncAnswer(version=held.version, topics=[DesiredTopic(topic="t", share=share)])
        self.answers[b, slot] = Answer(request, answer)

    def _free(self, b: int, *, lapsed: bool) -> None:
        if lapsed:
            assert str(b) in self.leases.expired(lambda name: self.silent_ticks[int(name)] * TICK_MS)
        self.version += 1
        self.unheld[b] = self.version
        rest = {str(1 - b): amount(UNITS)}
        self.leases = self.leases.freed(str(b)).with_target(self.leases.envelope, rest)
        self._advance(waits=True)
        self.stored = self.leases

    def _aim(self, target: dict[str, Amount]) -> None:
        self.leases = self.leases.with_target(self.leases.envelope, target)
        self._advance(waits=True)
        self.stored = self.leases

    def _advance(self, *, waits: bool) -> None:
        self._change(self.leases.advanced("01" if waits else "", self.version + 1))

    def _change(self, leases: Leases) -> None:
        self.version = max([self.version, *(held.version for held in leases.holdings.values())])
        self.leases = leases
