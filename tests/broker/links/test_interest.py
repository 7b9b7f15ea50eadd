"""Which topics have what subscribers want."""

from __future__ import annotations

import pytest

from broker.links.interest import ANY_NAME, is_wanted, new_filters, wanted_of
from srtm.control import LinkRequest


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
    asked = LinkRequest(sender="b", filters=["a"], groups=["$share/g/b/#"], kept=["$share/g/c"])
    assert wanted_of(asked) == ["a", "b/#", "c"]
    assert wanted_of(LinkRequest(sender="b", filters=None, groups=["$share/g/b/#"])) is None


def test_filters_are_new_that_were_not_there_and_all_are_after_all_was_wanted() -> None:
    assert new_filters(["a", "b"], ["b", "c"]) == ["c"]
    assert new_filters([], ["b", "c"]) == ["b", "c"]
    assert new_filters(None, ["b"]) == ["b"]
    assert new_filters(["b"], None) is None
