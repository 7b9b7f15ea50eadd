"""Which names two filters share, and that no name belongs to two topics."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.errors import BadInput
from srtm.topics.mqtt_filters import shared_name
from srtm.topics.mqtt_names import MqttNames, check_disjoint

LEVELS = st.sampled_from(["a", "b", "+", ""])


@st.composite
def filters(draw):
    levels = draw(st.lists(LEVELS, min_size=1, max_size=4))
    if draw(st.booleans()):
        levels.append("#")
    text = "/".join(levels)
    return text or "a"


def matches(pattern: str, name: str) -> bool:
    """Whether a filter matches a name, by a regular expression: `a/#` matches `a` too."""
    parts = ["[^/]*" if level == "+" else re.escape(level) for level in pattern.split("/")]
    if pattern == "#":
        return True
    if pattern.endswith("/#"):
        return re.fullmatch("/".join(parts[:-1]) + "(/.*)?", name) is not None
    return re.fullmatch("/".join(parts), name) is not None


@given(filters(), filters())
def test_an_example_is_matched_by_both_filters_and_where_there_is_none_no_name_is(one, other):
    example = shared_name(one, other)
    if example is not None:
        assert matches(one, example), example
        assert matches(other, example), example
    assert (shared_name(other, one) is None) == (example is None)
    choices = itertools.product((one, other), ("", "/a", "/b/a"), ("a", "b", ""))
    names = [re.sub(r"/?#$", rest, text).replace("+", level) for text, rest, level in choices]
    shared = [name for name in names if name and matches(one, name) and matches(other, name)]
    if example is None:
        assert not shared


@pytest.mark.parametrize(
    ("one", "other", "example"),
    [
        ("plant/+/heat", "plant/7/+", "plant/7/heat"),
        ("plant/#", "plant", "plant"),
        ("#", "+/+", "1/1"),
        ("#", "#", "1"),
        ("plant/+", "plant/1/heat", None),
        ("+/telemetry", "site1/#", "site1/telemetry"),
    ],
)
def test_the_example_is_a_name_that_a_reader_recognizes(one, other, example):
    assert shared_name(one, other) == example


def test_a_refusal_names_both_topics_filters_and_a_name():
    with pytest.raises(BadInput) as refused:
        check_disjoint("heat", MqttNames(filters=("+/telemetry",)), [("site", MqttNames(filters=("site1/#",)))])
    assert str(refused.value).endswith(
        "must share no name with topic 'site': '+/telemetry' and 'site1/#' there both match 'site1/telemetry'"
    )


@pytest.mark.parametrize(("own", "theirs"), [(("+",), ()), ((), ("+",)), (("a", "heat/#"), ("heat",))])
def test_the_own_names_of_topics_count(own, theirs):
    with pytest.raises(BadInput):
        check_disjoint("heat", MqttNames(filters=own), [("site", MqttNames(filters=theirs))])


def test_topics_without_filters_never_share_a_name():
    check_disjoint("heat", MqttNames(), [("site", MqttNames()), ("plant", MqttNames(filters=("plant/#",)))])
