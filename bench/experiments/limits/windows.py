"""The curves of an article on rate-limiting algorithms: what fixed and weighted windows count beside the exact count,
and what they, the log and two kinds of bucket let through of the same calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, pairwise
from random import Random

from bench.experiments.lab.figure import Effort, Experiment, Figure, Row
from bench.harness.results.panels import Panel, Series
from bench.harness.results.verdict import Check
from bench.limiting.algorithms import (
    ALGORITHMS,
    FIXED,
    LENGTH_S,
    LIMIT,
    SLICES,
    TRAFFIC,
    WINDOW_S,
    Algorithm,
    Windows,
    exact_counts,
    most_in_a_window,
)
from bench.limiting.request_sets import SECOND

RUNS = 5
CURVE_S = (600, 900)  # five minutes of one run
RANDOM, CONSTANT, EDGE = "random", "constant, 1.05 times the limit", "bursts at the minute's edge"


def figure(effort: Effort) -> Figure:
    rows = []
    for traffic, make in TRAFFIC.items():
        calls = [make(Random(seed)) for seed in islice(effort.seeds(), RUNS)]
        decided = [decisions(next(one for one in ALGORITHMS if one.name == "log"), instants) for instants in calls]
        for algorithm in ALGORITHMS:
            rows.append(row(traffic, algorithm, calls, decided))
        effort.step(f"{traffic}: {sum(map(len, calls)):,} calls")
    curve = TRAFFIC[RANDOM](Random(next(iter(effort.seeds()))))
    return Figure(
        rows=rows,
        panels=[_errors(rows), _curve(curve), _wrong(rows), _worst(rows)],
        checks=checks(rows),
        conditions=f"{LIMIT} calls in {WINDOW_S} s, {LENGTH_S / 3_600:g} h of calls",
    )


def decisions(algorithm: Algorithm, instants: Sequence[int]) -> list[int | None]:
    """When each call goes on; None: it is refused."""
    limiter = algorithm.make()
    return [limiter.released_ns(at_ns) for at_ns in instants]


def errors(algorithm: Algorithm, instants: Sequence[int]) -> list[float]:
    """How far its count is from the exact one at each call, once the first window is full. None decides here."""
    windows = Windows(algorithm.slices, weighted=algorithm.weighted)
    counted = [windows.counted(at_ns) for at_ns in instants]
    return [
        abs(found - exact)
        for at_ns, found, exact in zip(instants, counted, exact_counts(instants), strict=True)
        if at_ns >= WINDOW_S * SECOND
    ]


def row(
    traffic: str, algorithm: Algorithm, calls: Sequence[Sequence[int]], by_log: Sequence[Sequence[int | None]]
) -> Row:
    """``by_log``: what the log decides of the same calls. Of all runs together."""
    wrong = [error for instants in calls for error in errors(algorithm, instants)] if algorithm.slices else []
    let = stopped = worst = passed = 0
    for instants, right in zip(calls, by_log, strict=True):
        found = decisions(algorithm, instants)
        released = [at_ns for at_ns in found if at_ns is not None]
        worst = max(worst, most_in_a_window(released))
        passed += len(released)
        let += sum(mine is not None and log is None for mine, log in zip(found, right, strict=True))
        stopped += sum(mine is None and log is not None for mine, log in zip(found, right, strict=True))
    count = sum(map(len, calls))
    return {
        "traffic": traffic,
        "algorithm": algorithm.name,
        "slices": algorithm.slices if algorithm.weighted else 0,
        "bytes": algorithm.bytes,
        "mean_error": sum(wrong) / len(wrong) if wrong else None,
        "largest_error": max(wrong) if wrong else None,
        "worst": worst,
        "let_percent": 100 * let / count,
        "stopped_percent": 100 * stopped / count,
        "passed_percent": 100 * passed / count,
    }


def checks(rows: Sequence[Row]) -> list[Check]:
    by = {(one["traffic"], one["algorithm"]): one for one in rows}
    fixed = by[RANDOM, FIXED]["mean_error"]
    weighted = [_of_slices(rows, RANDOM, slices) for slices in SLICES]
    falling = [one["mean_error"] for one in weighted]
    even = _of_slices(rows, CONSTANT, 1)["mean_error"]
    edge = by[EDGE, FIXED]["worst"]
    exact = max(one["worst"] for one in rows if one["algorithm"] == "log")
    bucket = max(one["worst"] for one in rows if one["algorithm"] == "bucket, b = 100")
    half = max(one["worst"] for one in rows if one["algorithm"].startswith("bucket, b = 50"))
    return [
        Check("fixed window, bursts at the edge: most in 60 s", f"{edge}", f"{2 * LIMIT}", edge == 2 * LIMIT),
        Check(
            "two weighted minutes: error of the fixed window's",
            f"{falling[0]:.3g} of {fixed:.3g} calls",
            "at most a quarter",
            falling[0] <= fixed / 4,
        ),
        Check("constant calls, two weighted minutes: error", f"{even:.2g} calls", "at most 1", even <= 1),
        Check(
            "random calls: errors of 1, 2, 4, 6, 15, 60 slices",
            ", ".join(f"{one:.2g}" for one in falling),
            "each less than the one before",
            all(less < more for more, less in pairwise(falling)),
        ),
        Check("log: most in 60 s", f"{exact}", f"at most {LIMIT}", exact <= LIMIT),
        Check("article: bucket of 100, most in 60 s", f"{bucket}", f"at most {LIMIT}", bucket <= LIMIT),
        Check("bucket with b + r 60 s = 100, most in 60 s", f"{half}", f"at most {LIMIT}", half <= LIMIT),
    ]


def _of_slices(rows: Sequence[Row], traffic: str, slices: int) -> Row:
    return next(one for one in rows if one["traffic"] == traffic and one["slices"] == slices)


def _by_slices(rows: Sequence[Row], *fields: str) -> list[Series]:
    """A line for each traffic: the sum of ``fields`` over the number of slices."""
    return [
        Series(
            label=traffic,
            x=list(SLICES),
            y=[sum(_of_slices(rows, traffic, slices)[name] for name in fields) for slices in SLICES],
        )
        for traffic in dict.fromkeys(one["traffic"] for one in rows)
    ]


def _errors(rows: Sequence[Row]) -> Panel:
    return _over_slices("Weighted windows: error of the count", "calls (log scale)", _by_slices(rows, "mean_error"))


def _wrong(rows: Sequence[Row]) -> Panel:
    series = _by_slices(rows, "let_percent", "stopped_percent")
    return _over_slices("Weighted windows: decided unlike the log", "part of all calls (%, log scale)", series)


def _worst(rows: Sequence[Row]) -> Panel:
    return _over_slices("Weighted windows: most in 60 s", "calls let through (log scale)", _by_slices(rows, "worst"))


def _over_slices(title: str, y_label: str, series: list[Series]) -> Panel:
    return Panel(title=title, x_label="slices of a window", y_label=y_label, series=series, slo_ms=None, x_log=True)


def _curve(instants: Sequence[int]) -> Panel:
    """The article's curves: what each counts over time."""
    begin, end = (next(number for number, at in enumerate(instants) if at >= second * SECOND) for second in CURVE_S)
    x = [at_ns / SECOND / 60 for at_ns in instants[begin:end]]
    series = [Series(label="exact", x=x[::5], y=[float(one) for one in exact_counts(instants)[begin:end:5]])]
    for name, windows in (
        (FIXED, Windows(1, weighted=False)),
        ("two weighted minutes", Windows(1, weighted=True)),
        ("five windows of 15 s", Windows(4, weighted=True)),
    ):
        series.append(Series(label=name, x=x[::5], y=[windows.counted(at) for at in instants][begin:end:5]))
    return Panel(
        title="Random calls: what is counted",
        x_label="minute",
        y_label="calls in the last 60 s (log scale)",
        series=series,
        slo_ms=None,
    )


EXPERIMENT = Experiment(
    name="windows",
    title="Windows, log and buckets on the same calls",
    claim="A fixed window lets twice the limit through. Two weighted windows err by less than a quarter as much, and "
    "not at all under a constant load; more slices err less. The article calls the token bucket perfectly accurate. It "
    "holds another law: up to twice the limit in one window, unless burst and rate are chosen for it.",
    columns={
        "traffic": "traffic",
        "algorithm": "algorithm",
        "bytes a caller": "bytes",
        "error of the count, mean": "mean_error",
        "largest": "largest_error",
        "most let through in 60 s": "worst",
        "let through, of all calls, %": "passed_percent",
        "wrongly let, %": "let_percent",
        "wrongly stopped, %": "stopped_percent",
    },
    run=figure,
    runs=f"{RUNS} runs of {LENGTH_S / 3_600:g} h",
    sources=("limiting", "bench/limiting", "bench/experiments/limits"),
    full=Effort(seconds=0.0, repetitions=RUNS),
)
