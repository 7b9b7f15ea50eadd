"""A row of Table 1, fitted one way: what was found, what it is judged by, and the file in which it is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from bench.experiments.lab.layouts import HEADROOM, envelope
from bench.harness.results.results import replace_file
from bench.harness.results.verdict import Check, Verdict, at_most, none_of
from bench.simulation.traffic import Fleet
from srtm.errors import BadInput
from srtm.units import MICRO

PAPER_S = {5: 64, 10: 189, 15: 558, 20: 745, 25: 871, 30: 1058}  # {group size: Table 1, "time"}
PAPER_ROUNDS = {5: (1,), 10: (2, 1), 15: (5, 3, 1), 20: (5, 4, 2, 1), 25: (3, 4, 4, 2, 1), 30: (3, 5, 3, 2, 3, 1)}
PART = 20  # ours is to take at most one in so many of that
PUBLISHERS, RATE_PER_S, BATCH = 1_000, 10.0, 10
ENVELOPE = HEADROOM * PUBLISHERS * RATE_PER_S  # r of section 6, msg/s
PERCENTILE, LATENCY_MS = 99, 1.0
SEQUENTIAL, PAPER = "sequential", "paper"


Settings = Mapping[str, float | bool]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One group size fitted one way, and measured afterwards. Times in the names' units, rates in msg/s."""

    group: int
    method: str  # SEQUENTIAL | PAPER
    state: str  # of the fitting, as it is shown
    certain: bool | None
    took_s: float | None  # None: it failed
    rounds: tuple[tuple[int, float], ...]  # of each the brokers, and how long it measured, s
    assigned: tuple[float, ...]  # to each broker of the layout in force
    worst_p99_ms: (
        float | None
    )  # of any broker, in the time afterwards; None: one received nothing, or none was measured
    service_us: float
    promise_ms: float
    lost: int = 0  # messages of the time afterwards, or refused
    reasons: tuple[str, ...] = ()  # why that time does not count
    tries: int = 1  # how often it was measured
    aside: bool = False  # shown beside the others, not judged
    explanation: tuple[str, ...] = ()
    run: dict[str, Any] = field(default_factory=dict)  # of the load generator, where there was one
    settings: Settings = field(default_factory=dict)  # what it was made with
    commit: str | None = None  # None: not run from a checkout
    sources: str | None = None  # their fingerprint; None: not known, or in virtual time

    @property
    def name(self) -> str:
        way = "" if self.method == SEQUENTIAL else ", its way"
        return f"groups of {self.group}{way}" + (f", {self.service_us:g} us" if self.aside else "")

    @property
    def brokers(self) -> int:
        return len(self.assigned)

    @property
    def left(self) -> float:
        """What its brokers could still take of such publishers within the promise."""
        most = RATE_PER_S * kept_by_one(self.group, self.service_us, self.promise_ms)
        return sum(max(0.0, most - rate) for rate in self.assigned)

    def by_k(self) -> dict[int, tuple[int, float]]:
        """{brokers: (rounds, s that they measured)}"""
        found: dict[int, tuple[int, float]] = {}
        for brokers, seconds in self.rounds:
            rounds, before_s = found.get(brokers, (0, 0.0))
            found[brokers] = rounds + 1, before_s + seconds
        return found

    def flat(self) -> dict[str, Any]:
        """As an object of ``runs``."""
        by_k = self.by_k().items()
        return {
            **self.run,
            **{key: value for key, value in asdict(self).items() if key not in _NOT_FLAT},
            **{f"rounds_k{k}": rounds for k, (rounds, _) in by_k},
            **{f"measured_k{k}_s": seconds for k, (_, seconds) in by_k},
            "name": self.name,
            "rounds": len(self.rounds),
            "brokers": self.brokers,
            "burst": burst_of(self.group),
            "left": self.left,
            "paper_s": PAPER_S[self.group],
            "paper_brokers": len(PAPER_ROUNDS[self.group]),
            "explanation": " ".join(self.explanation),
            "valid": not self.reasons,
        }


_NOT_FLAT = {"run", "rounds", "assigned", "reasons", "settings"}


def traffic_of(group: int) -> Fleet:
    """As the topic declares it: when the groups fire is not said."""
    return Fleet(count=PUBLISHERS, rate=RATE_PER_S, process="periodic", batch=BATCH, group_size=group)


def burst_of(group: int) -> float:
    """b of section 6."""
    return float(envelope(traffic_of(group)).burst_micro // MICRO)


def kept_by_one(group: int, service_us: float, promise_ms: float) -> int:
    """The most publishers, an equal part of every group, that a broker with that service time keeps within the promise.

    Groups fire in turn, so the n-th message of a group's part takes n service times; of the largest number at most one
    in a hundred messages takes longer than the promise. Access delay is the topic's affair, and left out."""
    groups = -(-PUBLISHERS // group)
    in_time = int(round(promise_ms * 1e3) / service_us)
    for publishers in count(1):
        part, larger = divmod(publishers, groups)
        late = larger * max(0, BATCH * (part + 1) - in_time) + (groups - larger) * max(0, BATCH * part - in_time)
        if 100 * late > (100 - PERCENTILE) * BATCH * publishers:
            return publishers - 1
    raise AssertionError("count has no end")


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Of each that is judged, in order: it fits, keeps the promise afterwards, and ours in a twentieth of the printed
    time on no more brokers than the paper's way: where that was taken, as it came out here."""
    papers = {row.group: row.brokers for row in rows if row.method == PAPER and not row.aside}
    return [_verdict(row, papers.get(row.group, len(PAPER_ROUNDS[row.group]))) for row in rows if not row.aside]


def _verdict(row: Row, most_brokers: int) -> Verdict:
    checks = [Check("fitting", row.state, "fits", row.state == "fits")]
    if row.method == SEQUENTIAL:
        if row.took_s is not None:
            checks.append(at_most("time", row.took_s, PAPER_S[row.group] / PART, "s"))
        checks.append(at_most("brokers", row.brokers, most_brokers, "in use"))
    if row.worst_p99_ms is None:
        checks.append(Check("p99", "of nothing at a broker", f"at most {row.promise_ms:g} ms", kept=False))
    else:
        checks.append(at_most("p99", row.worst_p99_ms, row.promise_ms, "ms"))
    checks.append(none_of("messages lost or refused", row.lost))
    return Verdict(row.name, "", checks, [row.flat()], reasons=list(row.reasons))


def line_of(name: str, found: Sequence[Verdict]) -> str:
    """All rows in a line."""
    short = [verdict.line for verdict in found if not verdict.reached]
    return f"{name}: " + (f"{len(short)} of {len(found)} rows not reached: {'; '.join(short)}" if short else "reached")


def file_of(directory: Path, group: int, method: str) -> Path:
    return directory / f"{method}_{group}.json"


def keep(directory: Path, row: Row) -> None:
    """Whole or not at all."""
    replace_file(file_of(directory, row.group, row.method), msgspec.json.format(msgspec.json.encode(row)))


def kept(directory: Path, group: int, method: str, settings: Settings, sources: str | None) -> Row | None:
    """None: there is none, of these sources, that counts. Raises BadInput for a file that holds no row, or one that was
    made with other settings."""
    path = file_of(directory, group, method)
    try:
        row = msgspec.json.decode(path.read_bytes(), type=Row)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise BadInput("directory", str(path), f"must hold a row ({error})") from error
    if row.settings != settings:
        other = ", ".join(f"{key} {value:g}" for key, value in row.settings.items() if settings.get(key) != value)
        rule = f"must be a row with these settings, is one with {other}: remove it, or name another directory"
        raise BadInput("directory", str(path), rule)
    alike = sources is not None and row.sources == sources
    return row if alike and not row.reasons else None
