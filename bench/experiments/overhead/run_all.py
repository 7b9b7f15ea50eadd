"""``srtm bench overhead``: what it costs in processor time that shares follow the traffic.

Six real brokers, 1,000 topics, two kinds of traffic. *Steady*: every topic has some, which stays as it is; what is
spent then is spent on looking, and it is this that has a limit. *Shifting*: a few topics have much, which goes on to
the next broker every few seconds; what is spent then is told by the change of shares. Each is played under ``static``,
where nobody reports histories or proposes shares, and under ``fitted``. What adaptor, distributor and brokers take more
under ``fitted`` is the price of reports and updates; the rest is that of the messages and of a cluster of so many
topics. User and system time of the processes.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict

from bench.experiments.overhead.cluster import Stage, small_cluster
from bench.experiments.overhead.counters import KINDS
from bench.experiments.overhead.cpu import PARTS
from bench.experiments.overhead.traffic import BROKERS, LOAD, STEADY_LOADS
from bench.experiments.overhead.turn import SCENARIOS, SHIFTING, STEADY, OverheadOptions, Turn
from bench.harness.results.document import markdown_table, refuse_without_block
from bench.harness.results.publish import hand_over, settings_of
from bench.harness.results.results import Results
from bench.harness.results.verdict import Check, Verdict

BLOCK = "overhead"
LIMIT_PART = 0.01  # of the machine's cores
MODES = ("static", "fitted")
_ATTEMPTS = 3  # at a turn


COLUMNS = (*PARTS, "control", "total")


async def overhead(options: OverheadOptions, show: Callable[[str], None]) -> Verdict:
    """All turns on one cluster. Raises Unavailable."""
    refuse_without_block(options.document, BLOCK)
    started = time.time()
    cores = len(os.sched_getaffinity(0))
    turns = []
    async with small_cluster() as (running, client):
        stage = Stage(running, client, options)
        await stage.make_topics()
        for number, mode in in_order(options.turns):
            await stage.set_mode(mode)
            turns += [await _made(stage, scenario, mode, number, show) for scenario in SCENARIOS]
    verdict = judged(turns, cores)
    said = [claim(options), markdown(turns), said_of_histories(turns), said_of_changes(turns), f"{verdict.line}."]
    text = "\n\n".join(said)
    show(f"\n{text}")
    results = Results.of_verdicts(
        "bench overhead", [verdict], seed=options.seed, started=started, settings=settings_of(options)
    )
    hand_over(text, results, block=BLOCK, document=options.document, json_file=options.json_file, data=True)
    return verdict


def in_order(turns: int) -> list[tuple[int, str]]:
    """(Number of a turn, its mode). There and back: the same costs more as a cluster gets older and the machine does
    other work, and that must not count for or against one mode."""
    return [(number, mode) for number in range(turns) for mode in (MODES if number % 2 == 0 else MODES[::-1])]


async def _made(stage: Stage, scenario: str, mode: str, number: int, show: Callable[[str], None]) -> Turn:
    """A turn that counts; if chance or the generator spoils it, some times anew."""
    for _ in range(_ATTEMPTS):
        turn = await stage.turn(scenario, mode, number)
        shown = ", ".join(f"{part} {getattr(turn, part):.1f}" for part in COLUMNS)
        show(f"{scenario}, {mode}, turn {number}: {shown} ms/s; {turn.changes:.1f} changes/s; {_of_histories(turn)}")
        if not turn.reasons:
            break
        show("; ".join(turn.reasons))
    return turn


def claim(options: OverheadOptions) -> str:
    still = options.topics - options.moving
    return (
        f"{options.topics:,} topics on {BROKERS} real brokers, each topic on all of them. Steady: {still:,} have "
        f"{STEADY_LOADS[0]} to {STEADY_LOADS[-1]} msg/s each, Poisson, a sixth on every broker. Shifting: "
        f"{options.moving} have {LOAD:g} msg/s, which go on to the next broker every {options.every_s:g} s. User and "
        f"system time in ms a second, median of {options.turns} turns of {options.seconds:g} s; brokers: their Python, "
        "engines: the threads that carry their messages; control: all but these."
    )


def judged(turns: Sequence[Turn], cores: int) -> Verdict:
    """What ``fitted`` takes more than ``static`` where traffic is steady, against its limit; and whether there was
    anything to follow where it shifts."""
    more, limit = _more(turns, STEADY, "total"), 1000 * LIMIT_PART * cores
    changes = min(turn.changes for turn in turns if (turn.scenario, turn.mode) == (SHIFTING, "fitted"))
    checks = [
        Check(
            "reports and updates of steady traffic",
            f"{more:.1f} ms/s ({more / 10 / cores:.2f} % of {cores} cores)",
            f"below {limit:g} ms/s ({100 * LIMIT_PART:g} %)",
            more < limit,
        ),
        Check("changes of shares a second where it shifts", f"{changes:.2g}", "more than 0", changes > 0),
    ]
    rows: list[dict[str, object]] = [
        {"name": f"{turn.scenario}, {turn.mode}, {turn.number}", **asdict(turn)} for turn in turns
    ]
    reasons = [reason for turn in turns for reason in turn.reasons]
    return Verdict(BLOCK, "following the traffic costs next to nothing", checks, rows, reasons=reasons)


def markdown(turns: Sequence[Turn]) -> str:
    rows = []
    for scenario in SCENARIOS:
        for mode in MODES:
            figures = [f"{_median(turns, scenario, mode, column):.1f}" for column in COLUMNS]
            rows.append([scenario, mode, *figures, f"{_median(turns, scenario, mode, 'changes'):.1f}"])
        more = [f"{_more(turns, scenario, column):.1f}" for column in COLUMNS]
        rows.append([scenario, "more under fitted", *more, ""])
    return markdown_table(["traffic", "mode", *COLUMNS, "changes of shares a second"], rows)


def said_of_changes(turns: Sequence[Turn]) -> str:
    """What a change of shares costs."""
    changes = _median(turns, SHIFTING, "fitted", "changes")
    if changes == 0:
        return "Shares did not change."
    parts = ", ".join(f"{part} {_more(turns, SHIFTING, part) / changes:.1f}" for part in COLUMNS)
    return f"A change of shares, where traffic shifts, in ms: {parts}."


def said_of_histories(turns: Sequence[Turn]) -> str:
    """How many came under ``fitted``, of the last turn."""
    last = {turn.scenario: turn for turn in turns if turn.mode == "fitted"}
    said = "; ".join(f"{scenario} {_of_histories(turn)}" for scenario, turn in last.items())
    return f"Histories that came under fitted (bins in them), a second: {said}."


def _of_histories(turn: Turn) -> str:
    return ", ".join(f"{kind} {turn.histories[kind]:.1f} ({turn.bins[kind]:.0f})" for kind in KINDS)


def _more(turns: Sequence[Turn], scenario: str, column: str) -> float:
    """Under ``fitted`` than under ``static``."""
    return _median(turns, scenario, "fitted", column) - _median(turns, scenario, "static", column)


def _median(turns: Sequence[Turn], scenario: str, mode: str, column: str) -> float:
    return statistics.median(
        float(getattr(turn, column)) for turn in turns if (turn.scenario, turn.mode) == (scenario, mode)
    )
