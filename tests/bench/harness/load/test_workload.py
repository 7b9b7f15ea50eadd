"""Plans: the helpers that make them, and what the load generator refuses."""

import msgspec
import pytest

from bench.harness.load.run import run_plan
from bench.harness.load.workload import Plan, Publishers, Subscriber, joined, modelled
from srtm.errors import BadInput


def plan(**changes):
    publishers = changes.pop("publishers", modelled([0, 0], 10.0))
    fields = {"topic": "t", "targets": ["127.0.0.1:1"], "subscribers": [Subscriber(target=0)], "duration_s": 1.0}
    return Plan(publishers=publishers, **{**fields, **changes})


def column(name, values):
    return msgspec.structs.replace(modelled([0, 0], 10.0), **{name: values})


def test_a_model_gives_columns_of_equal_length():
    fleet = modelled([0, 1, 0], 10.0, id_prefix="sensor-", process="periodic", batch=4)
    assert fleet == Publishers(
        ids=["sensor-0", "sensor-1", "sensor-2"],
        target=[0, 1, 0],
        rate=[10.0] * 3,
        batch=[4] * 3,
        group=[-1] * 3,
        process=["periodic"] * 3,
    )


def test_a_group_is_as_many_publishers_in_a_row_as_its_size():
    assert modelled([0] * 5, 1.0, group_size=2).group == [0, 0, 1, 1, 2]


def test_members_of_a_group_are_spread_evenly_over_the_noise():
    assert modelled([0] * 5, 1.0, group_size=3, noise_ns=8).offset_ns == [0, 4, 8, 0, 4]
    assert modelled([0] * 5, 1.0, group_size=3).offset_ns == []


def test_noise_without_groups_is_refused():
    with pytest.raises(BadInput, match="noise_ns: 5: must be 0 where all are independent"):
        modelled([0], 1.0, noise_ns=5)


def test_joined_publishers_keep_their_groups_apart_and_have_every_column():
    grouped, alone = modelled([0] * 4, 1.0, group_size=2), modelled([1], 2.0, id_prefix="alone-")
    replayed = msgspec.structs.replace(modelled([1], 1.0, id_prefix="r-", process="trace"), instants_ns=[[3, 4]])
    fleet = joined([alone, grouped, replayed, msgspec.structs.replace(grouped, ids=list("abcd"))])
    assert fleet.group == [-1, 0, 0, 1, 1, -1, 2, 2, 3, 3]
    assert fleet.target == [1, 0, 0, 0, 0, 1, 0, 0, 0, 0]
    assert fleet.offset_ns == [0] * 10
    assert fleet.instants_ns == [[], [], [], [], [], [3, 4], [], [], [], []]


def test_a_group_size_below_one_is_refused():
    with pytest.raises(BadInput, match="group_size: 0: must be at least 1"):
        modelled([0], 1.0, group_size=0)


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"topic": "no spaces"}, "topic", '"no spaces"'),
        ({"duration_s": 0.0}, "duration_s", "0"),
        ({"message_size": 31}, "message_size", "31"),
        ({"percentile": 101.0}, "percentile", "101"),
        ({"publishers": modelled([1], 10.0)}, "publishers.target[0]", "1"),
        ({"publishers": modelled([0], 0.0)}, "publishers.rate[0]", "0"),
        ({"publishers": modelled([0], 1.0, batch=0)}, "publishers.batch[0]", "0"),
        ({"publishers": modelled([], 1.0)}, "publishers.ids", "[]"),
        ({"publishers": column("rate", [1.0])}, "publishers.rate", "1 entries"),
        ({"publishers": column("ids", ["a", "a"])}, "publishers.ids[1]", "a"),
        ({"publishers": msgspec.structs.replace(column("group", [7, 7]), rate=[1.0, 2.0])}, "publishers.group[1]", "7"),
        ({"topics": ["a", "b"]}, "topics", "2 entries"),
        ({"publishers": column("offset_ns", [1])}, "publishers.offset_ns", "1 entries"),
        ({"publishers": column("instants_ns", [[1], []])}, "publishers.instants_ns[0]", "1 entries"),
        ({"publishers": column("process", ["trace"] * 2)}, "publishers.instants_ns[0]", "0 entries"),
        ({"subscribers": []}, "publishers.target[0]", "0"),
        ({"subscribers": [Subscriber(target=0, rdy=0)]}, "subscribers[0].rdy", "0"),
    ],
)
async def test_a_plan_that_breaks_a_rule_is_refused_by_field_and_value(changes, field, value):
    with pytest.raises(BadInput) as caught:
        await run_plan(plan(**changes))
    assert (caught.value.field, caught.value.value) == (field, value)
    assert caught.value.rule.startswith("must")
