"""A topic that is written as a file and read again is the same topic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from srtm.operations.topic_difference import differences
from srtm.operations.topic_file_text import topic_file_text
from srtm.topics.file import read_topic_text
from srtm.topics.spec import parse_topic_json

NAMES = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF).filter(str.isprintable), min_size=1, max_size=12)
BATCHES = st.integers(1, 4)
PUBLISHERS = st.lists(
    st.tuples(NAMES, st.floats(0.001, 10.0), st.sampled_from(["", "g", 'a"b']), BATCHES), unique_by=lambda row: row[0]
)


def document(rows: list[tuple[str, float, str, int]], **more: object) -> dict[str, object]:
    usual: dict[str, object] = {"name": "cars", "rate": 1000, "burst": 50, "slo": {"percentile": 99, "latency_ms": 5}}
    columns = {
        "ids": [row[0] for row in rows],
        "rates": [row[1] for row in rows],
        "groups": [row[2] for row in rows],
        "batch": [row[3] for row in rows],
    }
    return {**usual, "publishers": [columns] if rows else [], **more}


def same(rows: list[tuple[str, float, str, int]], **more: object) -> None:
    spec = parse_topic_json(document(rows, **more)).to_json()
    again = parse_topic_json(read_topic_text(topic_file_text(spec), {})).to_json()
    assert again == spec


@given(PUBLISHERS)
def test_whatever_its_publishers_are_called(rows: list[tuple[str, float, str, int]]) -> None:
    same(rows)


def test_with_each_setting_that_a_topic_has() -> None:
    same([("a", 1.5, "g", 1)], burst="auto", on_excess="reject", mode="proportional", lease="15s", seed=3)


def test_one_line_a_publisher_where_a_list_can_say_all() -> None:
    text = topic_file_text(parse_topic_json(document([("a", 1.0, "g", 2), ("b", 2.0, "", 2)])).to_json())
    assert "\na,1.0,g\nb,2.0,\n" in text
    assert "batch = 2" in text


def test_with_places_of_publishers_of_which_some_are_not_known() -> None:
    for process in ("poisson", ["poisson", "periodic"]):
        columns = {"ids": ["a", "b"], "rates": [1.0, 2.0], "process": process}
        places = {"latitudes": [52.5, None], "longitudes": [-13.25, None]}
        same([], publishers=[columns | places])
    text = topic_file_text(document([], publishers=[{"ids": ["a", "b"], "rates": [1.0, 2.0], **places}]))
    assert "id,rate,correlation_group,latitude,longitude\na,1.0,,52.5,-13.25\nb,2.0,,,\n" in text


def test_a_name_with_three_quotes_is_written_in_columns() -> None:
    same([("it'''s", 1.0, "", 1)])


def test_differences_name_settings_and_publishers() -> None:
    now = parse_topic_json(document([("a", 1.0, "", 1), ("b", 2.0, "", 1)])).to_json()
    slo = {"percentile": 99, "latency_ms": 1}
    then = parse_topic_json(document([("a", 1.0, "g", 1), ("c", 3.0, "", 1)], rate=1100, slo=slo)).to_json()
    assert differences(now, now) == []
    assert differences(now, then) == [
        "rate: 1,000 -> 1,100",
        "slo.latency_ms: 5 -> 1",
        "- b, 2 msg/s",
        "+ c, 3 msg/s",
        "~ a: 1 msg/s, poisson -> 1 msg/s, group g, poisson",
    ]


def test_a_publisher_that_was_moved_on_the_map_differs() -> None:
    columns = {"ids": ["a"], "rates": [1.0]}
    now = parse_topic_json(document([], publishers=[columns])).to_json()
    then = parse_topic_json(document([], publishers=[columns | {"latitudes": [1.5], "longitudes": [2]}])).to_json()
    assert differences(now, then) == ["~ a: 1 msg/s, poisson -> 1 msg/s, poisson, at 1.5, 2"]


def test_of_many_differences_the_first_are_shown() -> None:
    now = parse_topic_json(document([])).to_json()
    then = parse_topic_json(document([(f"p{at}", 1.0, "", 1) for at in range(100)])).to_json()
    assert differences(now, then)[-1] == "  and 80 more"
