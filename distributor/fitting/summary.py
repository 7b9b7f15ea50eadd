"""A fitting as people and tools are shown it: JSON documents. Pure.

``state``: "watching" (the promise is watched, nothing was searched for), "queued" (another search is under way),
"waiting" (no message has come yet: the placement by rates stands), "running" (``phase`` says what it does), "fits",
"does not fit" (``outcome`` and ``missing`` say why), "failed" (``reason``), "off".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distributor.fitting.events import Missing, Outcome, Report, RoundRecord
from distributor.fitting.task import FittingOptions
from distributor.prediction.replay import Latency
from distributor.prediction.sequential_test import CONFIDENCE, Verdict
from srtm.text import figure, plural

Json = dict[str, Any]
WATCHING, WAITING, QUEUED, RUNNING, FAILED, OFF = "watching", "waiting", "queued", "running", "failed", "off"


@dataclass(frozen=True)
class Services:
    """What messages take of brokers. ``mean_us``: {broker: microseconds a message in the mean, as recorded last while
    this topic was fitted}; ``lab_ns``: {broker: the laboratory's service time}, 0 or missing elsewhere."""

    mean_us: Mapping[str, float] = field(default_factory=dict)
    lab_ns: Mapping[str, int] = field(default_factory=dict)


UNKNOWN = Services()


def begun(
    state: str,
    options: FittingOptions,
    started_at: str,
    *,
    phase: str = "",
    rounds: Sequence[RoundRecord] = (),
    measured: Mapping[str, Latency] | None = None,
    services: Services = UNKNOWN,
    reason: str = "",
) -> Json:
    """One that has not ended, or that failed."""
    return {
        "state": state,
        "phase": phase,
        "outcome": None,
        "method": options.method,
        "rounds_s": options.rounds_s if options.method == "paper" else None,
        "started_at": started_at,
        "took_s": None,
        "certain": None,
        "brokers": len(measured) if measured else None,
        "rounds": [_round(one) for one in rounds],
        "measured": _measured(measured or {}, services),
        "service_us": dict(services.mean_us),
        "missing": None,
        "others_worst_ms": None,
        "explanation": [],
        "reason": reason,
    }


def ended(report: Report, options: FittingOptions, started_at: str, target_ns: int, services: Services) -> Json:
    state, measured = _state(report), report.latency if report.heard else {}
    return {
        **begun(state, options, started_at, rounds=report.rounds, measured=measured, services=services),
        "outcome": report.outcome.value,
        "reason": report.reason,
        "took_s": report.took_ns / 1e9,
        "certain": report.certain,
        "brokers": len(report.layout.brokers),
        "missing": _missing(report.missing),
        "others_worst_ms": report.others_worst_ns / 1e6,
        "explanation": explanation(report, target_ns),
    }


def off(services: Services = UNKNOWN) -> Json:
    return begun(OFF, FittingOptions(method="off"), "", services=services)


def explanation(report: Report, target_ns: int) -> list[str]:
    """Sentences: how it ended, what each lost round showed, what would have to be there."""
    lines = [_how_it_ended(report)]
    for number, one in enumerate(report.rounds, start=1):
        late = [name for name, verdict in one.verdicts.items() if _is_late(verdict, one.latency[name], target_ns)]
        lines += [_why_lost(number, len(one.layout.brokers), name, one.latency[name], target_ns) for name in late]
    lines += [f"{name} is full: it keeps {figure(rate, 6)} msg/s of this traffic" for name, rate in report.full.items()]
    lines += [
        f"{name}: {figure(100 * part)} % of the messages were not measured: no subscriber took them in time"
        for name, part in report.unsent.items()
    ]
    if report.missing is not None:
        lines.append(f"missing: {missing_text(report.missing)}")
    if report.unscaled:
        lines.append(f"the scaler was asked: {report.unscaled}")
    return lines


def missing_text(missing: Missing) -> str:
    wanted = [f"{missing.brokers} more {plural(missing.brokers, 'broker')}"] if missing.brokers else []
    wanted += [f"a burst of {figure(missing.burst, 6)} messages"] if missing.burst else []
    wanted += [f"a broker that takes {figure(missing.mcap, 6)} msg/s: one publisher sends that"] if missing.mcap else []
    return ", ".join(wanted) or "nothing that is known: no number of brokers and no burst would do"


def _state(report: Report) -> str:
    if report.outcome is Outcome.NO_TRAFFIC:
        return WAITING
    return "fits" if report.fits else "does not fit"


def _how_it_ended(report: Report) -> str:
    count, took_s = len(report.layout.brokers), report.took_ns / 1e9
    what = f"{len(report.rounds)} {plural(len(report.rounds), 'round')}, {figure(took_s)} s"
    if not report.heard:
        return f"not measured, {report.outcome.value} ({what}): the placement by rates stands"
    if not report.fits:
        why = f": {report.reason}" if report.reason else ""
        return f"{report.outcome.value}{why} ({what})"
    sure = f"with {100 * CONFIDENCE:g} % confidence" if report.certain else "by the sample, without certainty"
    return f"fits on {count} {plural(count, 'broker')} ({what}), {sure}"


def _is_late(verdict: Verdict, latency: Latency, target_ns: int) -> bool:
    return verdict is Verdict.ABOVE or (verdict is Verdict.UNDECIDED and latency.total_ns > target_ns)


def _why_lost(number: int, brokers: int, name: str, latency: Latency, target_ns: int) -> str:
    if latency.access_ns > target_ns:
        why = "messages wait for tokens: a larger share, or fewer brokers"
    elif latency.processing_ns > target_ns:
        why = "processing takes too long: more brokers"
    else:
        why = "access and processing together take too long"
    where = f"round {number}, {brokers} {plural(brokers, 'broker')}: {name}"
    parts = f"access {figure(latency.access_ns / 1e6)} ms, processing {figure(latency.processing_ns / 1e6)} ms"
    return f"{where} {figure(latency.total_ns / 1e6)} ms ({parts}); {why}"


def _round(one: RoundRecord) -> Json:
    return {
        "brokers": len(one.layout.brokers),
        "took_s": (one.ended_ns - one.started_ns) / 1e9,
        "measured": [
            {**_latency(name, one.latency[name]), "verdict": verdict.value} for name, verdict in one.verdicts.items()
        ],
    }


def _measured(latency: Mapping[str, Latency], services: Services) -> list[Json]:
    return [
        {**_latency(name, one), "lab_service_time_ns": services.lab_ns.get(name, 0)} for name, one in latency.items()
    ]


def _latency(broker: str, one: Latency) -> Json:
    """At the percentile of the promise."""
    return {
        "broker": broker,
        "messages": one.count,
        "total_ms": one.total_ns / 1e6,
        "access_ms": one.access_ns / 1e6,
        "processing_ms": one.processing_ns / 1e6,
    }


def _missing(missing: Missing | None) -> Json | None:
    return None if missing is None else {"brokers": missing.brokers, "burst": missing.burst, "mcap": missing.mcap}
