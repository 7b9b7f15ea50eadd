"""Prints a plan: the placement, its predicted delays, and those of an even spread."""

from __future__ import annotations

from rich.console import Console

from srtm.client.distributor import Json
from srtm.console.output import number, table
from srtm.text import figure, plural

_LONGEST_LIST = 40  # rows of a table for people
_KNOWN = {"simulation": "simulated", "formula": "by formula (a simulation would say too little)"}


def promise(view: Json) -> str:
    """Return a topic's promise: "p99 <= 1 ms"."""
    slo = view["slo"]
    return f"p{slo['percentile']:g} <= {figure(slo['latency_ms'], 6)} ms"


def show_plan(plan: Json, console: Console) -> None:
    """Print ``plan``, an answer of ``POST /v1/plan``."""

    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    say(
        f"plan of {plan['name']}: {plan['state']}, k = {plan['k']} ({plan['placement']}, {plan['split']} split); "
        f"{plan['publishers']:,} publishers, {figure(plan['publishers_rate'], 6)} msg/s; "
        f"r {figure(plan['rate'], 6)} msg/s, b {figure(plan['burst'], 6)}; promise {promise(plan)}"
    )
    for line in plan["reasons"]:
        say(f"  {line}")
    _show_brokers(plan, console)
    predicted = plan["predicted"]
    say(
        f"{_KNOWN[predicted['method']]}: {predicted['messages']:,} messages, {figure(predicted['seconds'])} s, "
        f"seed {predicted['seed']}"
    )
    say(f"worst broker: {_delays(predicted)}")
    say(f"DRL penalty against one bucket: {_penalty(plan['penalty'])}")
    say(f"admitted afterwards: {_admitted(plan['admitted_afterwards'])}")
    if (even := plan["balanced"]) is not None:
        over = f"{even['k']} {plural(even['k'], 'broker')}"
        say(f"balanced over {over} instead (lb): {_delays(even['predicted'])}")
        say(f"  DRL penalty {_penalty(even['penalty'])}; admitted afterwards: {_admitted(even['admitted_afterwards'])}")
    if (moves := plan.get("moves")) is not None:  # only what asks before a change has them
        say(f"{_who_go(moves)} to another broker")
    for line in promise_lines(plan):
        say(line)


def _who_go(moves: int) -> str:
    if moves == 0:
        return "no publisher goes"
    return "1 publisher goes" if moves == 1 else f"{moves:,} publishers go"


def is_promised(plan: Json) -> bool:
    """Return whether everybody has a place and the promise is predicted with the confidence asked for."""
    return bool(plan["state"] == "placed" and (plan.get("promise") or {}).get("predicted"))


def promise_lines(plan: Json) -> list[str]:
    """Return what is predicted of the promise: in how many minutes it is kept, and what would do if in too few."""
    found = plan.get("promise")
    if found is None:
        return []
    if found["kept"] is None:
        return ["the promise: nobody publishes yet" if found["predicted"] else "the promise: nobody has a place"]
    lines = [f"the promise is {kept_minutes(found['kept'])}, access and processing, on the worst broker"]
    others = []
    if plan["k"] > 1:  # with one broker this is one bucket
        others.append(f"{kept_minutes(found['one_bucket'])} in one bucket (access alone)")
    if found["even"] is not None and plan["balanced"]["k"] > 1:
        others.append(f"{kept_minutes(found['even'])} spread evenly")
    if others:
        lines.append(f"  it would be {', '.join(others)}")
    if "enough" in found:
        lines.append(f"  not surely in {found['confidence']:g} of 100 minutes: {_enough(found['enough'], plan)}")
    return lines


def kept_minutes(kept: Json) -> str:
    """Return "kept in 97 of 100 minutes (93 to 99)"."""
    chance, low, high = (100 * kept[key] for key in ("chance", "low", "high"))
    if kept["method"] == "formula":
        return f"kept in about {_whole(chance)} of 100 minutes (by formula: too many messages to draw)"
    return f"kept in {_whole(chance)} of 100 minutes ({low:.0f} to {high:.0f})"


def _whole(percent: float) -> int:
    """Return whole per cent: 100 and 0 mean all and none."""
    return min(99, max(1, round(percent))) if 0 < percent < 100 else round(percent)


def _enough(enough: Json, plan: Json) -> str:
    if enough["limit"] == "service":
        return "one message alone takes a broker longer than the promise allows"
    if enough["limit"] == "processing":
        return "processing breaks it: more brokers would do, or faster ones"
    if enough["limit"] == "room":
        return "brokers have no room for all publishers: more brokers would do, or larger ones"
    ways = []
    if enough["rate"] is not None:
        ways.append(f"rate = {figure(enough['rate'], 6)} (now {figure(plan['rate'], 6)})")
    ways.append(f"burst = {figure(enough['burst'], 6)} (now {figure(plan['burst'], 6)})")
    return f"{' or '.join(ways)} would do"


def _show_brokers(plan: Json, console: Console) -> None:
    percentile = f"p{plan['slo']['percentile']:g}"
    columns = [
        "broker",
        "service us",
        "publishers",
        "groups",
        "msg/s",
        "r_l",
        "b_l",
        "of (r, b)",
        f"access {percentile} ms",
        f"processing {percentile} ms",
        f"both {percentile} ms",
        "free afterwards msg/s",
    ]
    rows = [
        [
            broker["broker"],
            f"{figure(broker['service_us'], 6)} ({broker['service_known']})",
            broker["publishers"],
            broker["groups"],
            broker["rate_assigned"],
            broker["rate"],
            broker["burst"],
            f"{broker['rate_part']:.1%}, {broker['burst_part']:.1%}",
            broker["access_ms"],
            broker["processing_ms"],
            broker["total_ms"],
            "no limit known" if broker["free_afterwards"] is None else broker["free_afterwards"],
        ]
        for broker in plan["brokers"]
    ]
    console.print(table("", columns, rows[:_LONGEST_LIST], left=2))
    if len(rows) > _LONGEST_LIST:
        console.print(f"and {len(rows) - _LONGEST_LIST:,} more brokers: --json has all of them")


def _delays(delays: Json) -> str:
    parts = {"access": delays["access_ms"], "processing": delays["processing_ms"], "both": delays["total_ms"]}
    return f"p{delays['percentile']:g} " + ", ".join(f"{what} {_ms(value)}" for what, value in parts.items())


def _penalty(penalty: Json) -> str:
    return (
        f"sum {_ms(penalty['sum_ms'])} over all messages, {_ms(penalty['mean_ms'])} a message; "
        f"p99 {_ms(penalty['p99_ms'])} more than the {_ms(penalty['one_p99_ms'])} of one bucket"
    )


def _ms(value: float | None) -> str:
    return "without end" if value is None else f"{number(float(value))} ms"


def _admitted(admitted: Json) -> str:
    largest = admitted["largest_topic"]
    return "no limit is known" if largest is None else f"a further topic of up to {figure(largest, 6)} msg/s"
