"""A split that a fitting made of a recording stays in force for as long as the placement does that it was made for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from distributor.fitting.events import Layout, Scaler
from distributor.fitting.marks import NO_MARKS
from distributor.fitting.task import layout_in_force, placement_of, same_places, task_of
from distributor.model.leases import MICRO, Amount
from distributor.placement import planner as placing
from tests.support.distributor_in_process import Distributor, settle, spec


def refined_layout(layout: Layout) -> Layout:
    """A little of the first broker's share to the second."""
    (rate, burst), (other_rate, other_burst) = layout.shares_micro
    shares = ((rate - 5 * MICRO, burst - MICRO), (other_rate + 5 * MICRO, other_burst + MICRO))
    return replace(layout, shares_micro=shares, refined=True)


async def test_it_is_in_force_and_stays_with_the_placement_also_for_the_next_leader(tmp_path: Path) -> None:
    distributor = await Distributor.open(tmp_path / "store.sqlite3")
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec(split="fitted", mode="static"))
    await settle(a, b)
    topic = distributor.registry.topic("cars")
    before = layout_in_force(topic)
    assert before is not None
    assert not before.refined
    layout = refined_layout(before)
    placement = placement_of(topic, layout)
    assert not same_places(placement, topic.placement)
    await distributor.registry.arrange("cars", topic.assignment_version, placement, "fitting")
    await settle(a, b)
    made = {name: Amount(*share) for name, share in zip(layout.brokers, layout.shares_micro, strict=True)}
    assert distributor.registry.topic("cars").leases.target == made
    await distributor.aclose()

    again = await Distributor.open(tmp_path / "store.sqlite3")
    topic = again.registry.topic("cars")
    in_force = layout_in_force(topic)
    assert in_force is not None
    assert in_force.refined
    assert same_places(placement_of(topic, in_force), topic.placement)
    envelope = topic.leases.envelope
    assert placing.shares(topic.spec, envelope, topic.placement, ()) == made
    assert placing.shares(topic.spec, envelope, topic.placement, (), {"a": 20.0, "b": -20.0}) != made  # a stranger
    assert placing.shares(replace(topic.spec, split="proportional"), envelope, topic.placement, ()) != made
    assert placing.shares(topic.spec, replace(envelope, burst=envelope.burst + MICRO), topic.placement, ()) != made
    mover = topic.placement.ids_of["a"][0]
    assert not topic.placement.moved({mover: "b"}).refined
    await again.aclose()


async def test_only_topics_of_which_nobody_else_makes_the_shares_are_refined(tmp_path: Path) -> None:
    distributor = await Distributor.open(tmp_path / "store.sqlite3")
    await distributor.brokers("a", "b")
    for split, mode, refines in [
        ("fitted", "static", True),
        ("fitted", "fitted", False),
        ("proportional", "static", False),
    ]:
        await distributor.submit(spec(split=split, mode=mode))
        task = task_of(distributor.registry.topic("cars"), Scaler.NONE, NO_MARKS)
        assert task.refines is refines
    await distributor.aclose()
