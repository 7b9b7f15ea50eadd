"""Traffic by assignment: who sends where, and who fires together."""

import pytest

from bench.harness.cluster_runs.assigned_traffic import plan_of, settled
from srtm.errors import Unavailable

SETTINGS = {"seconds": 3.0, "warmup_s": 1.0, "seed": 7, "slo_ms": 5.0, "percentile": 99.0}
COLUMNS = {
    "ids": ["a", "b", "c"],
    "brokers": ["b2", "b1", "b2"],
    "rates": [10.0, 10.0, 10.0],
    "batches": [10, 10, 10],
    "groups": ["g", "", "g"],
    "processes": ["periodic"] * 3,
}


def test_publishers_send_to_the_brokers_that_they_were_assigned_to_and_groups_fire_together():
    plan = plan_of("t", COLUMNS, {"b1": "h:1", "b2": "h:2", "b3": "h:3"}, **SETTINGS)
    assert (plan.targets, plan.publishers.target) == (["h:1", "h:2", "h:3"], [1, 0, 1])
    assert plan.publishers.group == [0, -1, 0]
    assert (plan.publishers.batch, plan.publishers.process) == ([10, 10, 10], ["periodic"] * 3)
    assert [one.target for one in plan.subscribers] == [0, 1]
    assert (plan.duration_s, plan.warmup_s, plan.seed, plan.slo_ms, plan.percentile) == (3.0, 1.0, 7, 5.0, 99.0)


def view(state, *versions):
    places = [{"share_version": granted, "applied_version": applied} for granted, applied in versions]
    return {"state": state, "reason": "none", "brokers": places}


class Told:
    """A distributor that answers with one view after the other, the last again and again."""

    def __init__(self, *views):
        self.views = list(views)

    async def topic(self, _name):
        return self.views.pop(0) if len(self.views) > 1 else self.views[0]


@pytest.mark.parametrize(
    "early", [view("waiting"), view("partial", (1, 1)), view("placed", (2, 1)), view("placed", (0, 0))]
)
async def test_shares_are_in_force_once_all_are_placed_and_every_broker_says_so(early, autojump_clock):
    assert await settled(Told(early, view("placed", (2, 2))), "t", within_s=1.0) == view("placed", (2, 2))


async def test_as_many_brokers_as_are_asked_for_must_have_a_share(autojump_clock):
    both = view("placed", (1, 1), (3, 3))
    assert await settled(Told(view("placed", (1, 1)), both), "t", within_s=1.0, brokers=2) == both


async def test_a_topic_that_never_settles_is_told_with_its_state(autojump_clock):
    with pytest.raises(Unavailable, match=r"shares of t .* within 3 s: partial, 1 brokers, none"):
        await settled(Told(view("partial", (1, 1))), "t", within_s=3.0)
