"""Tables of topics and brokers for people, from the distributor's JSON."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest
from typing import Any

import msgspec
from rich.console import Console

from srtm.client.distributor import Json
from srtm.console.conditions import conditions, remarks
from srtm.console.output import table
from srtm.console.plans import promise
from srtm.control import MqttLosses
from srtm.text import figure, plural

_CHANGES_SHOWN = 3
_FULL_SHOWN = 3
_SESSIONS = "mqtt"  # the channel of all sessions
_NOTHING: Json = {"count": 0}


def show_status(result: dict[str, list[Json]], console: Console) -> None:
    """Print all brokers and topics."""
    show_brokers(result["brokers"], console)
    for line in _away(result["brokers"], result["topics"]):
        console.print(line, soft_wrap=True)
    show_topics(result["topics"], console)


def show_brokers(views: list[Json], console: Console) -> None:
    """Print a table of brokers, and what is to be said of each."""
    columns = ["broker", "address", "state", "alive", "mcap msg/s", "allocated msg/s", "free msg/s", "last sync s ago"]
    rows = [
        [
            broker["name"],
            broker.get("tcp_address"),
            broker.get("state"),
            broker["alive"],
            _mcap(broker),
            broker.get("allocated"),
            _free(broker),
            broker.get("last_sync_s_ago"),
        ]
        for broker in views
    ]
    console.print(table("Brokers", columns, rows, left=4))
    for broker in views:
        for remark in remarks(*conditions(broker)):
            console.print(f"{broker['name']}: {remark}", soft_wrap=True)
    if any(broker["alive"] is None for broker in views):
        console.print("a standby answered: which brokers are alive, and what they report, is known to the leader alone")


def _away(brokers: list[Json], topics: list[Json]) -> Iterator[str]:
    """Lines on brokers to which publishers belong and that are not there."""
    for broker in brokers:
        if broker["alive"] is not False:
            continue
        counts = {
            topic["name"]: place["publishers"]
            for topic in topics
            for place in topic["brokers"]
            if place["broker"] == broker["name"] and place["publishers"]
        }
        if counts:
            told = ", ".join(f"{count:,} of {topic}" for topic, count in counts.items())
            name, state = broker["name"], broker.get("state")
            word = "not heard from yet" if state == "expected" else state
            yield (
                f"{name} is {word}, and publishers belong there ({told}): start it; if it is gone for good: "
                f"`srtm brokers dead {name}`, then `srtm brokers forget {name}`"
            )


def _mcap(broker: Json) -> object:
    """Return the capacity of a broker, msg/s, marked if nobody stated or measured it."""
    return f"{figure(broker['mcap'], 6)} (assumed)" if broker.get("mcap_assumed") else broker.get("mcap")


def _free(broker: Json) -> float | None:
    """Return the rate that is free on a broker, msg/s. It is unknown for a broker that is not alive."""
    return broker.get("rcap") if broker["alive"] else None


def show_topics(views: list[Json], console: Console) -> None:
    """Print a table of topics."""
    columns = [
        "topic",
        "state",
        "kept",
        "brokers",
        "rate msg/s",
        "burst",
        "lease",
        "publishers",
        "promise",
        "worst access p99 ms",
    ]
    rows = [
        [
            view["name"],
            view["state"],
            kept(view),
            ", ".join(_named(place) for place in view["brokers"]),
            view["rate"],
            view["burst"],
            view["lease"],
            view["publishers"],
            promise(view),
            max((p99 for place in view["brokers"] if (p99 := _p99_ms(place, "access")) is not None), default=None),
        ]
        for view in views
    ]
    console.print(table("Topics", columns, rows, left=4))


def _named(place: Json) -> str:
    """Return a broker's name, with its state if that is not "live"."""
    state = place.get("broker_state", "live")
    return place["broker"] if state in ("live", "expected") else f"{place['broker']} ({state or 'forgotten'})"


def kept(view: Json) -> str:
    """Return whether a topic's promise is kept, in a word."""
    return {"kept": "yes", "broken": "NO"}.get(view.get("promise", ""), "unknown")


def show_topic(view: Json, console: Console) -> None:
    """Print a topic: its word on the promise, its shares, its delays, and what there is to say of each broker."""

    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    say(
        f"{view['name']}: {view['state']}, version {view['version']}, "
        f"placement {view.get('placement_version')}; {view['publishers']:,} publishers, "
        f"{figure(view['publishers_rate'], 6)} msg/s; r {figure(view['rate'], 6)} msg/s, "
        f"b {figure(view['burst'], 6)}; promise {promise(view)}; "
        f"mode {view.get('mode', 'static')}"
    )
    if "promise" in view:
        say(f"promise {view['promise']}: {view['promise_reason']}")
    if view.get("reason"):
        say(view["reason"])
    if (cost := view.get("drl_penalty")) is not None and cost["messages"]:
        say(
            f"DRL penalty at {cost['at']}, of {cost['messages']:,} messages in {figure(cost['seconds'])} s: "
            f"{figure(cost['mean_ms'])} ms a message, p99 {figure(cost['p99_ms'])} ms more than one bucket's"
        )
    _show_shares(view["brokers"], console)
    _show_delays(view["brokers"], console)
    for line in _remarks(view):
        say(line)


def show_why(found: Json, console: Console) -> None:
    """Print why a topic is late."""

    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    cause = "" if found["cause"] == "nothing" else f"{found['cause']}: "
    say(f"{found['topic']}: promise {found['promise']}; {cause}{found['sentence']}")
    if found["remedy"]:
        say(f"do: {found['remedy']}")
    if found["figures"]:
        rows = [[name.replace("_", " "), value] for name, value in found["figures"].items()]
        console.print(table("", ["figure", "value"], rows, left=1))
    for other in found["also"]:
        say(f"also {other['cause']}: {other['sentence']}; {other['remedy']}")


def _show_shares(places: list[Json], console: Console) -> None:
    columns = [
        "broker",
        "address",
        "publishers",
        "msg/s",
        "r_l",
        "b_l",
        "renewed s ago",
        "demand msg/s",
        "fill ratio",
        "access mean ms",
        "told s ago",
    ]
    rows = [
        [
            _named(place),
            place["address"],
            place["publishers"],
            place["rate_assigned"],
            _or(place.get("rate_in_force"), place["rate"]),
            _or(place.get("burst_in_force"), place["burst"]),
            place["renewed_s_ago"],
            place.get("demand"),
            place.get("fill_ratio"),
            place.get("access_mean_ms"),
            place.get("traffic_s_ago"),
        ]
        for place in places
    ]
    console.print(table("Shares, and the traffic of the last second that was told", columns, rows, left=2))


def _show_delays(places: list[Json], console: Console) -> None:
    columns = [
        "broker",
        "received",
        "wait for tokens",
        "queued",
        "in flight",
        "access p99 ms",
        "processing p99 ms",
        "consumer wait p99 ms",
        "credit",
        "told s ago",
    ]
    rows = [_delay_row(place) for place in places]
    console.print(table("Delays of the last 60 s, and what waits now", columns, rows))


def _delay_row(place: Json) -> list[Any]:
    report = place.get("report") or {}
    queues = report.get("queues", [])
    return [
        place["broker"],
        report.get("received"),
        report.get("backlog"),
        report.get("depth", 0) + sum(queue["depth"] for queue in queues) if report else None,
        sum(queue["in_flight"] for queue in queues) if report else None,
        _p99_ms(place, "access"),
        _p99_ms(place, "processing"),
        _p99_ms(place, "consumer_wait"),
        _credit(report) if report else None,
        place.get("report_s_ago"),
    ]


def _credit(report: Json) -> str:
    """Return whether consumers take what is queued: "none" if a channel has messages that no consumer asked for."""
    if not report.get("channels", True):
        return "no channel"
    stuck = [queue["channel"] for queue in report.get("queues", []) if queue["depth"] and not queue["in_flight"]]
    return f"none: {', '.join(stuck)}" if stuck else "yes"


def _remarks(view: Json) -> Iterator[str]:
    for change in view.get("changes", [])[:_CHANGES_SHOWN]:
        shares = ", ".join(
            f"{name} {figure(share['rate'], 6)}/{figure(share['burst'], 6)}" for name, share in change["shares"].items()
        )
        yield f"{change['at']} {change['mode']}: r_l/b_l {shares} ({change['reason']})"
    if view.get("layout") not in (None, "watching"):
        yield f"layout: {view['layout']}"
    if view.get("pinned"):
        yield f"{view['pinned']:,} {plural(view['pinned'], 'publisher')} did not move when told, and stay"
    for broker, losses in view.get("mqtt_losses", {}).items():
        for remark in loss_remarks(msgspec.convert(losses, MqttLosses)):
            yield f"{broker}: {remark}"
    for place in view["brokers"]:
        if place.get("rate_astray"):
            astray = figure(place["rate_astray"])
            yield f"{place['broker']}: {astray} msg/s come from publishers that belong elsewhere"
        for remark in remarks(*conditions(place)):
            yield f"{place['broker']}: {remark}"


def loss_remarks(losses: MqttLosses) -> Iterator[str]:
    """Yield lines on what MQTT's clients of a topic lost at a broker."""
    untaken = [
        f"{sum(counts):,} {word} ({', '.join(f'QoS {qos}: {n:,}' for qos, n in enumerate(counts) if n)})"
        for word, counts in (("refused", losses.refused), ("dropped", losses.dropped))
        if counts
    ]
    if untaken:
        yield f"publishes by MQTT that were not taken since its start: {', '.join(untaken)}"
    if losses.full:
        most = nlargest(_FULL_SHOWN, losses.full.items(), key=lambda one: one[1])
        shown = [f"{'sessions' if channel == _SESSIONS else channel} {count:,}" for channel, count in most]
        more = len(losses.full) - len(most)
        shown += [f"{more:,} more {plural(more, 'group')}"] if more else []
        yield f"deliveries dropped since its start where sessions or groups were full: {', '.join(shown)}"


def _or(value: float | None, other: float) -> float:
    return other if value is None else value


def _p99_ms(place: Json, histogram: str) -> float | None:
    """Return the p99 of the last minute, ms; None if nothing was measured."""
    report = place.get("report")
    measured = report["last_60s"].get(histogram, _NOTHING) if report else _NOTHING
    return float(measured["p99_ms"]) if measured["count"] else None
