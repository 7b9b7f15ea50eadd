"""The default split against the other modes, over random fleets (``bench.simulation.split_cases``).

A case counts by the worst broker's p99 access delay under the default, by the best of the others. Delays below a tenth
of the promise count as a tenth: nobody feels them. Half of the fleets are for tuning (seeds from 0 on). The other half
judges (seeds from 20,000 on): never look at those to choose a constant.

The cause of a case that is far behind is found by running it again: the same fleet drawn anew, and with brokers that
tell every bin at once.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

from adaptor.policy import Policy
from bench.experiments.lab.figure import Effort, Experiment, Figure, Row
from bench.harness.cluster_runs.recovery import SECOND_NS
from bench.harness.results.panels import Panel, Series
from bench.harness.results.sources import SIMULATED
from bench.harness.results.verdict import Check
from bench.simulation.broker_reports import Reporting
from bench.simulation.buckets import BIN_NS
from bench.simulation.gdrl_exchange import Exchanging
from bench.simulation.split_cases import ENDS_S, SplitCase, split_case, worst_p99_ns
from srtm.topics.adaptation import Adaptation, Mode

DEFAULT: Mode = "fitted"
OTHERS: tuple[Mode, ...] = ("static", "proportional", "gdrl")
CASES = 1_000
UNSEEN = 20_000  # the first seed that judges
_WORKERS = 2
_NEAR, _FAR = 1.1, 2.0
_DRAWS = (1, 2, 3)  # of a fleet that is far behind
_CHANCE = "chance: within twice in the median of three draws of the fleet"
_TOLD = "what brokers tell: within twice if they told every bin at once"
_RULE = "the rule: as far behind in the median of three draws, and if brokers told every bin at once"


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """One case under every mode: {mode: p99 of the worst broker, ms}, and the same of the 5 s after a shift."""

    seed: int
    name: str
    slo_ms: float
    settled_ms: dict[Mode, float]
    shift_ms: dict[Mode, float]

    @property
    def best(self) -> Mode:
        """Of the others."""
        return min(OTHERS, key=lambda mode: self.settled_ms[mode])

    @property
    def ratio(self) -> float:
        """The default's by the best of the others."""
        return self._ratio(self.settled_ms)

    @property
    def shift_ratio(self) -> float:
        """The same right after a shift."""
        return self._ratio(self.shift_ms)

    def ratio_of(self, mode: Mode) -> float:
        """That of ``mode`` by the best of all."""
        least_ms = self.slo_ms / 10
        return max(self.settled_ms[mode], least_ms) / max(min(self.settled_ms.values()), least_ms)

    def _ratio(self, found_ms: dict[Mode, float]) -> float:
        least_ms = self.slo_ms / 10
        return max(found_ms[DEFAULT], least_ms) / max(min(found_ms[mode] for mode in OTHERS), least_ms)


def result_of(seed: int) -> CaseResult:
    """The case of ``seed`` under every mode."""
    return _result(split_case(seed))


def cause_of(seed: int) -> str:
    """Why the default is more than twice as late as the best of the others in the case of ``seed``."""
    case = split_case(seed)
    if statistics.median(_result(replace(case, draw=draw)).ratio for draw in _DRAWS) <= _FAR:
        return _CHANCE
    return _TOLD if _result(case, tells_all=True).ratio <= _FAR else _RULE


def _result(case: SplitCase, *, tells_all: bool = False) -> CaseResult:
    settled_ms: dict[Mode, float] = {}
    shift_ms: dict[Mode, float] = {}
    for mode in (*OTHERS, DEFAULT):
        run, ends_ns = _run(case, mode, tells_all=tells_all and mode == DEFAULT), round(ENDS_S * SECOND_NS)
        run.run(ends_ns)
        run.gone(ends_ns)
        logs = [broker.log() for broker in run.brokers]
        settled_ms[mode] = worst_p99_ns(logs, case.windows_s) / 1e6
        shift_ms[mode] = worst_p99_ns(logs, [case.after_shift_s]) / 1e6
    return CaseResult(seed=case.seed, name=case.name, slo_ms=case.slo_ms, settled_ms=settled_ms, shift_ms=shift_ms)


def _run(case: SplitCase, mode: Mode, *, tells_all: bool = False) -> Reporting | Exchanging:
    if mode == "gdrl":
        return Exchanging(
            *(case.arrivals_ns, case.envelope, case.shares, Adaptation(), case.seed), batch=case.batch, step_ns=BIN_NS
        )
    return Reporting(
        *(case.arrivals_ns, case.envelope, Policy(mode, Adaptation()), case.shares),
        declared=[traffic.rate for traffic in case.declared],
        batch=case.batch,
        dispersions=[traffic.dispersion for traffic in case.declared],
        step_ns=BIN_NS,
        tells_all=tells_all,
    )


def results_of(seeds: Sequence[int]) -> Iterator[CaseResult]:
    """In order, on two processors."""
    with ProcessPoolExecutor(_WORKERS) as pool:
        yield from pool.map(result_of, seeds, chunksize=4)


def causes_of(seeds: Sequence[int]) -> dict[int, str]:
    """{seed: its cause}."""
    with ProcessPoolExecutor(_WORKERS) as pool:
        return dict(zip(seeds, pool.map(cause_of, seeds), strict=True))


def figure(effort: Effort) -> Figure:
    half = effort.repetitions // 2
    found = []
    for result in results_of([*range(half), *range(UNSEEN, UNSEEN + effort.repetitions - half)]):
        found.append(result)
        if result.seed % 50 == 0:
            effort.step(f"{result.name}: {result.ratio:.3g} times the best of the others")
    tuned, judged = found[:half], found[half:]
    return Figure(
        rows=[*_summary("tuned on", tuned), *_summary("judged on", judged), *_far(judged)],
        panels=[_panel(judged)],
        checks=checks(judged),
        conditions=f"{len(tuned)} fleets to tune on and {len(judged)} to judge on, {ENDS_S:g} s of traffic each",
    )


def part_within(ratios: Sequence[float], limit: float) -> float:
    """Part of the cases."""
    return sum(ratio <= limit for ratio in ratios) / max(1, len(ratios))


def checks(judged: Sequence[CaseResult]) -> list[Check]:
    """What is promised of the default."""
    settled, shifted = [one.ratio for one in judged], [one.shift_ratio for one in judged]
    near, far, after = part_within(settled, _NEAR), part_within(settled, _FAR), part_within(shifted, _FAR)
    return [
        Check("fleets within 1.1 times the best of the others", f"{near:.1%}", "at least 90 %", near >= 0.9),
        Check("fleets within 2 times the best of the others", f"{far:.1%}", "at least 99 %", far >= 0.99),
        Check("the same in the 5 s after a shift, within 2 times", f"{after:.1%}", "at least 90 %", after >= 0.9),
    ]


def _summary(half: str, results: Sequence[CaseResult]) -> list[Row]:
    rows = []
    for mode in (DEFAULT, *OTHERS):
        ratios = [one.ratio if mode == DEFAULT else one.ratio_of(mode) for one in results]
        rows.append(
            {
                "name": f"{half} {len(results)} fleets",
                "mode": mode,
                "near": part_within(ratios, _NEAR),
                "far": part_within(ratios, _FAR),
                "mean": math.exp(sum(map(math.log, ratios)) / max(1, len(ratios))),
                "shift_far": part_within([one.shift_ratio for one in results], _FAR) if mode == DEFAULT else None,
            }
        )
    return rows


def _far(judged: Sequence[CaseResult]) -> list[Row]:
    """How many cases over twice the best of the others have which cause, and each of them."""
    far = sorted((one for one in judged if one.ratio > _FAR), key=lambda one: -one.ratio)
    causes = causes_of([one.seed for one in far])
    rows: list[Row] = [
        {"name": f"{count} of {len(far)} that are over twice", "cause": cause}
        for cause, count in Counter(causes.values()).most_common()
    ]
    for one in far:
        found = f"{one.best} {one.settled_ms[one.best]:.3g} ms, {DEFAULT} {one.settled_ms[DEFAULT]:.3g} ms"
        rows.append({"name": one.name, "mode": found, "mean": one.ratio, "cause": causes[one.seed].split(":")[0]})
    return rows


def _panel(judged: Sequence[CaseResult]) -> Panel:
    series = []
    for mode in (DEFAULT, *OTHERS):
        ratios = sorted(min(one.ratio_of(mode), 1_000.0) for one in judged)
        series.append(Series(label=mode, x=ratios, y=[100 * (at + 1) / len(ratios) for at in range(len(ratios))]))
    return Panel(
        title="Worst broker's p99, by that of the best mode",
        x_label="times the best of all modes",
        y_label="% of the fleets",
        series=series,
        slo_ms=None,
        x_log=True,
        y_log=False,
    )


EXPERIMENT = Experiment(
    name="split-study",
    title="The default split on random fleets",
    claim="fitted is within 1.1 times the best of the other modes on 90 % of the fleets, and within 2 times on 99 %.",
    columns={
        "fleets": "name",
        "mode": "mode",
        "within 1.1 times the best of the others": "near",
        "within 2 times": "far",
        "times the best, geometric mean": "mean",
        "after a shift, within 2 times": "shift_far",
        "cause, found by running it again": "cause",
    },
    run=figure,
    sources=("adaptor", "broker/history", "broker/leases", *SIMULATED),
    runs="{repetitions} fleets",
    full=Effort(repetitions=CASES),
)
