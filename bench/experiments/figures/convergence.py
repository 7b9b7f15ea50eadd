"""GDRL's rounds until brokers agree, which its paper left open: over their number, the topology, eta, and the skew of
demand. Demand is frozen; agreed: all fill ratios within 1 %."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from adaptor.gdrl.exchange import Supply
from bench.experiments.lab.figure import Effort, Experiment, Figure, Panel, Row, Series
from bench.harness.results.verdict import Check
from bench.simulation.gdrl_rounds import (
    BURST,
    RATE,
    Step,
    as_printed,
    random_rounds,
    ring,
    ring_rounds,
    ring_with_momentum,
    start,
)

SIZES = (4, 6, 16, 64, 256)
ETAS = (1 / 24, 1 / 12, 1 / 6, 1 / 3, 5 / 12, 2 / 3)
DOUBLINGS = (0, 1, 2, 3, 5, 7)  # the largest demand is 2**so much times the least
_RING_SIZE, _RANDOM_SIZE = 16, 64
_FROM = 16  # fewer brokers than that have hardly any way to go
_MOST, _MOST_RANDOM = 500_000, 1_000  # rounds
REACH = {6: 35, 256: 100}  # {brokers: rounds to reach, worst of the runs, random partners}
EXPONENTS = {"random partners": (0.0, 0.5), "ring": (1.5, 2.5)}  # log N and N squared, {kind: least and most}
CONDITIONS = (
    f"demand is frozen, so no bucket fills or empties: the brokers' S sum to r = {RATE:,.0f} msg/s, and to a burst of "
    f"{BURST} for each; a tenth of the brokers idle"
)

Rounds = Callable[[list[Supply], random.Random], int | None]


def _random(supplies: list[Supply], dice: random.Random) -> int | None:
    return random_rounds("fill", supplies, dice, _MOST_RANDOM)


def _ring(make: Callable[[Sequence[Supply]], Step]) -> Rounds:
    return lambda supplies, _: ring_rounds(make(supplies), supplies, _MOST)[0]


KINDS: dict[str, Rounds] = {
    "random partners": _random,
    "ring": _ring(ring),
    "ring, momentum": _ring(ring_with_momentum),
    "as printed": _ring(as_printed),
}


def figure(effort: Effort) -> Figure:
    rows = list(_rows(effort))
    return Figure(rows=rows, panels=_panels(rows), checks=checks(rows), conditions=CONDITIONS)


def _rows(effort: Effort) -> Iterator[Row]:
    for size in SIZES:
        for kind, rounds in KINDS.items():
            yield _row("N", kind, size, effort, rounds)
    for eta in ETAS:
        with_eta = _ring(lambda supplies, eta=eta: ring(supplies, eta))  # type: ignore[misc]
        yield _row("eta", "ring", _RING_SIZE, effort, with_eta, eta=eta)
    for doublings in DOUBLINGS:
        yield _row("skew", "random partners", _RANDOM_SIZE, effort, _random, doublings=doublings)
        yield _row("skew", "ring", _RING_SIZE, effort, _ring(ring), doublings=doublings)


def _row(
    over: str, kind: str, size: int, effort: Effort, rounds: Rounds, eta: float = 1 / 3, doublings: float = 3.0
) -> Row:
    effort.step(f"{over}: {kind}, {size} brokers, eta = {eta:.3g}, skew 2^{doublings:g}")
    found = []
    for seed in effort.seeds():
        dice = random.Random(f"{seed} {size}")  # the same demand for all kinds
        found.append(rounds(start(size, dice, doublings), dice))
    counts = [one for one in found if one is not None]
    whole = len(counts) == len(found)
    return {
        "over": over,
        "kind": kind,
        "brokers": size,
        "eta": eta if kind == "ring" else None,
        "skew": 2**doublings,
        "rounds": statistics.median(counts) if whole else None,
        "worst": max(counts) if whole else None,
        "agreed": f"{len(counts)} of {len(found)}",
    }


def checks(rows: Sequence[Row]) -> list[Check]:
    """Random partners as fast as is asked of the product, rounds that grow with N as they should, and the printed
    formula never done."""
    by = {(row["kind"], row["brokers"]): row for row in rows if row["over"] == "N"}
    found = []
    for size, most in REACH.items():
        worst = by["random partners", size]["worst"]
        found.append(
            Check(
                f"{size} brokers, random partners: worst",
                f"{worst} rounds",
                f"at most {most}",
                worst is not None and worst <= most,
            )
        )
    found += [_grows(kind, by, *EXPONENTS[kind]) for kind in EXPONENTS]
    printed = [row["rounds"] for row in rows if row["kind"] == "as printed"]
    found.append(
        Check(
            "the formula as printed: sizes at which all runs agree",
            f"{sum(one is not None for one in printed)}",
            "0",
            all(one is None for one in printed),
        )
    )
    return found


def _grows(kind: str, by: Mapping[tuple[str, int], Row], least: float, most: float) -> Check:
    """The exponent of N between the ends: log N has one that falls, about 1 / ln N."""
    small, large = _FROM, SIZES[-1]
    rounds = by[kind, small]["rounds"], by[kind, large]["rounds"]
    what, bound = f"{kind}, {small} to {large} brokers: exponent of N", f"{least:g} to {most:g}"
    if None in rounds:
        return Check(what, "not all agree", bound, False)
    exponent = math.log(rounds[1] / rounds[0]) / math.log(large / small)
    return Check(what, f"{exponent:.2g}", bound, least <= exponent <= most)


def _panels(rows: Sequence[Row]) -> list[Panel]:
    names = {"N": ("brokers", "brokers"), "eta": ("eta", "eta"), "skew": ("skew", "largest demand over the least")}
    return [_panel(over, key, label, rows) for over, (key, label) in names.items()]


def _panel(over: str, key: str, label: str, rows: Sequence[Row]) -> Panel:
    """Without what never agreed."""
    mine = [row for row in rows if row["over"] == over and row["rounds"] is not None]
    series = []
    for kind in KINDS:
        line = [row for row in mine if row["kind"] == kind]
        if line:
            name = kind if over == "N" else f"{kind}, {line[0]['brokers']} brokers"
            series.append(Series(label=name, x=[row[key] for row in line], y=[row["rounds"] for row in line]))
    return Panel(
        title=f"GDRL: rounds over {label}",
        x_label=label if over == "eta" else f"{label} (log scale)",
        y_label="rounds (log scale)",
        series=series,
        slo_ms=None,
        x_log=over != "eta",
    )


EXPERIMENT = Experiment(
    name="gdrl",
    title="GDRL: rounds until brokers agree",
    claim="Random partners agree in about log N rounds, a ring in about N squared; the printed formula never does.",
    columns={
        "over": "over",
        "partners": "kind",
        "brokers": "brokers",
        "eta": "eta",
        "largest demand over least": "skew",
        "rounds": "rounds",
        "worst": "worst",
        "runs that agree": "agreed",
    },
    run=figure,
    runs="{repetitions} runs a point",
    full=Effort(seconds=0.0),
)
