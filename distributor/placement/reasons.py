"""Why a topic is placed as it is: lines for people, warnings and refusals. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from distributor.model.cluster import Placement
from distributor.model.leases import MICRO, Amount
from srtm.errors import BadInput
from srtm.text import figure, plural
from srtm.topics.publishers import Floats
from srtm.topics.spec import TopicSpec

SEVERAL_TOPICS = "clients of several topics: "  # begins the line of ``joint``
_MAX_TOPICS_IN_ERROR = 5  # the error message names the worst five


def reasons_after_move(reasons: Sequence[str], placement: Placement, before: Placement) -> tuple[str, ...]:
    """``reasons`` with new lines about single brokers, after a few publishers have moved; warnings are left out."""
    about_brokers = tuple(f"{name}: " for name in {*before.brokers, *placement.brokers})
    stale = (*about_brokers, "warning: ", SEVERAL_TOPICS)
    kept = [_placed(placement) if ": placed on " in line else line for line in reasons if not line.startswith(stale)]
    heads = {name: len(ids) for name, ids in placement.ids_of.items()}
    lines = [
        f"{name}: {counted(heads[name], 'publisher')}, {figure(rate, 6)} msg/s"
        for name, rate in placement.assigned.items()
    ]
    return (*kept, *lines)


def _placed(placement: Placement) -> str:
    return f"{who_sends(placement.publishers.rates)}: placed on {counted(len(placement.brokers), 'broker')}"


def who_sends(rates: Floats) -> str:
    """Return "20 publishers send 200 msg/s"."""
    verb = "sends" if len(rates) == 1 else "send"
    return f"{counted(len(rates), 'publisher')} {verb} {figure(float(rates.sum()), 6)} msg/s"


def counted(count: int, noun: str) -> str:
    """Return "1 broker", "2 brokers"."""
    return f"{count:,} {plural(count, noun)}"


def reasons_after_fitting_step(
    reasons: Sequence[str], placement: Placement, before: Placement, limits: Mapping[str, float]
) -> tuple[str, ...]:
    """``reasons`` after a step of a fitting. ``limits``: {broker: msg/s that it can serve beside its other topics}."""
    lines = reasons_after_move(reasons, placement, before)
    kept = tuple(line for line in lines if not line.startswith("missing"))
    if placement.missing == 0:
        return kept
    full = [
        f"{name} keeps {figure(rate, 6)} msg/s of such traffic beside its other topics" for name, rate in limits.items()
    ]
    why = "; ".join(full) or "publishers are let in step by step"
    return (*kept, f"missing {figure(placement.missing, 6)} msg/s: {why}")


def share_lines(target: Mapping[str, Amount]) -> list[str]:
    """One line for each share."""
    return [
        f"{name}: share {figure(one.rate / MICRO, 6)} msg/s, {figure(one.burst / MICRO, 6)} messages"
        for name, one in target.items()
    ]


def oversized_batches(spec: TopicSpec, placement: Placement, target: Mapping[str, Amount]) -> list[BadInput]:
    """One error for each broker where a publisher's batch is larger than the burst of its share.

    Such a batch never passes in one go. A broker without a target is dead: its publishers come back or go elsewhere.
    """
    batches = spec.publishers.batches
    found = []
    for at, name in enumerate(placement.brokers):
        if name not in target:
            continue
        here = np.flatnonzero(placement.at == at)
        worst = int(here[np.argmax(batches[here])])
        burst = target[name].burst / MICRO
        if batches[worst] > burst:
            rule = f"must be at most {figure(burst, 6)} messages, the burst of its share on {name}, to pass in one go"
            found.append(BadInput(f"batch of publisher {spec.publishers.ids[worst]}", int(batches[worst]), rule))
    return found


def no_room_for(lacking: Mapping[str, float]) -> str:
    """The text of a refusal. ``lacking``: {topic: msg/s for which other brokers have no room}."""
    worst = sorted(lacking, key=lambda topic: -lacking[topic])
    named, rest = worst[:_MAX_TOPICS_IN_ERROR], worst[_MAX_TOPICS_IN_ERROR:]
    parts = [f"{topic} {figure(lacking[topic], 6)} msg/s" for topic in named]
    parts += [f"{len(rest):,} more topics {figure(sum(lacking[topic] for topic in rest), 6)} msg/s"] if rest else []
    return f"the other brokers have no room for: {', '.join(parts)}"
