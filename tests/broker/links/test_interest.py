"""Which topics have what subscribers want."""

from __future__ import annotations

import pytest

from broker.links.interest import ANY_NAME, all_filters, is_wanted


@pytest.mark.parametrize(
    ("wanted", "names", "is_so"),
    [
        ([], ["roads"], False),
        ([], [ANY_NAME], False),
        (None, ["roads"], True),
        (["roads"], ["roads"], True),
        (["+"], ["roads"], True),
        (["plant/+/heat"], ["roads", "plant/7/#"], True),
        (["plant/+/heat"], ["roads", "plant/7/cold"], False),
        (["a", "b/#"], ["b/c/d"], True),
        (["$mine/#"], ["roads"], False),
        (["$mine/#"], [ANY_NAME], True),
    ],
)
def test_a_topic_is_wanted_where_a_name_of_it_matches_a_filter(
    wanted: list[str] | None, names: list[str], is_so: bool
) -> None:
    assert is_wanted(wanted, names) is is_so


def test_shared_subscriptions_count_with_their_filters_unless_all_is_wanted() -> None:
    assert all_filters(["a"], ["$share/g/b/#"]) == ["a", "b/#"]
    assert all_filters(None, ["$share/g/b/#"]) is None
