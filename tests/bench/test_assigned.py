"""Traffic by assignment: who sends where, and who fires together."""

from bench.assigned import plan_of

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
