"""Topic files and documents: what is accepted comes back the same, what is refused names field, value and rule."""

import math
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.errors import BadInput, NotFound
from srtm.operations.topic_difference import differences
from srtm.operations.topic_file_text import topic_file_text
from srtm.topics.file import read_topic_file
from srtm.topics.publishers import ALONE
from srtm.topics.spec import PublisherSpec, parse_change, parse_topic_json

TOPIC = """
name = "la-highways"
rate = 13277
burst = "auto"
[slo]
percentile = 99
latency_ms = 1.0
[[publishers]]
csv = "sensors.csv"
process = "periodic"
batch = 2
[[publishers]]
count = 5
rate = 10
group_size = 2
id_prefix = "model-"
"""
SENSORS = "id,rate,correlation_group\nnorth, 12.5,bridge\nsouth,2,\n\neast,1,bridge\n"


def document(**changes):
    return {"name": "t", "rate": 100, "burst": 10, "slo": {"percentile": 99, "latency_ms": 1}} | changes


def with_csv(*lines, **changes):
    return document(publishers=[{"csv_text": "\n".join(["id,rate,correlation_group", *lines]) + "\n"}], **changes)


def refusal(body) -> BadInput:
    with pytest.raises(BadInput) as caught:
        parse_topic_json(body)
    return caught.value


def test_a_topic_file_is_read_with_its_lists_and_models(tmp_path):
    (tmp_path / "topic.toml").write_text(TOPIC)
    (tmp_path / "sensors.csv").write_text(SENSORS)
    spec = parse_topic_json(read_topic_file(tmp_path / "topic.toml"))
    assert (spec.name, spec.rate, spec.burst, spec.slo.percentile, spec.slo.latency_ms) == (
        "la-highways",
        13277.0,
        "auto",
        99.0,
        1.0,
    )
    assert (spec.mode, spec.split, spec.lease, spec.placement) == ("fitted", "fitted", "keep", "srtm")
    publishers = spec.publishers
    assert publishers[0] == PublisherSpec(
        id="north", rate=12.5, correlation_group="bridge", process="periodic", batch=2
    )
    assert publishers.ids == ("north", "south", "east", "model-0", "model-1", "model-2", "model-3", "model-4")
    assert publishers.group_names == ("bridge", "model-group-0", "model-group-1", "model-group-2")
    assert publishers.groups.tolist() == [0, ALONE, 0, 1, 1, 2, 2, 3]
    assert (publishers.load, publishers.largest_batch) == (65.5, 2)


def test_publishers_of_one_group_name_are_one_group_in_whatever_block():
    block = {"ids": ["a"], "rates": [1], "groups": ["g"]}
    other = {"csv_text": "id,rate,correlation_group\nb,1,g\n"}
    assert parse_topic_json(document(publishers=[block, other])).publishers.groups.tolist() == [0, 0]


PLACED = "id,rate,correlation_group,latitude,longitude\n"


def test_publishers_may_say_where_they_are():
    listed = parse_topic_json(document(publishers=[{"csv_text": PLACED + "a,1,g,52.5,-13.25\nb,1,,,\n"}]))
    columns = {"ids": ["a", "b"], "rates": [1, 1], "groups": ["g", None]}
    places = {"latitudes": [52.5, None], "longitudes": [-13.25, None]}
    assert listed == parse_topic_json(document(publishers=[columns | places]))
    assert listed != parse_topic_json(document(publishers=[columns]))
    assert listed.publishers.points_of([1, 0]) == [None, (52.5, -13.25)]
    assert parse_topic_json(listed.to_json()) == listed


def test_a_list_with_empty_places_is_as_one_without():
    listed = parse_topic_json(document(publishers=[{"csv_text": PLACED + "a,1,,,\n"}]))
    assert listed == parse_topic_json(with_csv("a,1,"))
    assert "latitudes" not in listed.to_json()["publishers"][0]


@pytest.mark.parametrize(
    "text",
    ["id,rate\na,1\nb,2\n", "a,1\nb,2", "\ufeffRate, ID\r\n1,a\r\n\r\n2,b\r\n", "a,1,\nb,2,\n", "a,1,,,\nb,2,,,\n"],
)
def test_a_list_needs_neither_a_header_nor_groups(text):
    listed = parse_topic_json(document(publishers=[{"csv_text": text}]))
    assert listed == parse_topic_json(with_csv("a,1,", "b,2,"))


def placed(line):
    return document(publishers=[{"csv_text": f"{PLACED}{line}\n"}])


names = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=12)
rows = st.lists(
    st.tuples(
        names, st.floats(1e-6, 5), names | st.just(""), st.sampled_from(["poisson", "periodic"]), st.integers(1, 9)
    ),
    max_size=8,
    unique_by=lambda row: row[0],
)


@given(rows, st.floats(40, 1e9), st.floats(1, 1e9) | st.just("auto"), st.sampled_from(["lb", "conc", "maxmin", "srtm"]))
def test_a_spec_survives_the_way_through_json(rows, rate, burst, placement):
    columns = list(zip(*rows, strict=True)) or [()] * 5
    fields = ("ids", "rates", "groups", "process", "batch")
    block = {field: list(column) for field, column in zip(fields, columns, strict=True)}
    spec = parse_topic_json(document(rate=rate, burst=burst, placement=placement, publishers=[block] if rows else []))
    assert parse_topic_json(spec.to_json()) == spec


def test_specs_that_differ_in_one_publisher_are_not_equal():
    spec = parse_topic_json(with_csv("a,1,g", "b,1,"))
    assert spec == parse_topic_json(with_csv("a,1,g", "b,1,"))
    for other in (with_csv("a,2,g", "b,1,"), with_csv("a,1,h", "b,1,"), with_csv("a,1,g", "c,1,"), with_csv("a,1,g")):
        assert spec != parse_topic_json(other)


def test_a_topic_without_publishers_is_a_topic():
    assert len(parse_topic_json(document()).publishers) == 0


REFUSED = [
    ("rate", document(rate=-1), "must be greater than 0"),
    ("rate", document(rate=0), "must be greater than 0"),
    ("rate", document(rate=math.nan), "must be a finite number"),
    ("rate", document(rate="100"), "must be a valid number"),
    ("rate", document(rate=True), "must be a valid number"),
    ("rate", document(rate=1e-9), "must be at least 0.000001"),
    ("rate", document(rate=10**400), None),
    ("burst", document(burst=0.5), 'must be a number of messages from 1 to 1,000,000,000, "auto" or "paper"'),
    ("burst", document(burst="atuo"), '"auto" or "paper"'),
    ("burst", document(burst=math.nan), "must be a number of messages"),
    ("burst", document(burst=True), "must be a number of messages"),
    ("burst", document(burst=10**400), "must be a number of messages"),
    ("name", document(name="a b"), "must be 1 to 64 of the characters"),
    ("name", document(name="#ephemeral"), "must be 1 to 64 of the characters"),
    ("name", document(name="x" * 55 + "#ephemeral"), "must be 1 to 64 of the characters"),
    ("name", document(name="x\n"), "must be 1 to 64 of the characters"),
    ("slo.percentile", document(slo={"percentile": 98, "latency_ms": 1}), "must be one of 50, 90, 95, 99, 99.9"),
    ("slo.latency_ms", document(slo={"percentile": 99, "latency_ms": 0}), "must be greater than or equal to 0.000001"),
    (
        "slo.latency_ms",
        document(slo={"percentile": 99, "latency_ms": 1e-7}),
        "must be greater than or equal to 0.000001",
    ),
    ("slo.latency_ms", document(slo={"percentile": 99, "latency_ms": 1e13}), "must be less than or equal to 86400000"),
    ("slo.latency_ms", document(slo={"percentile": 99, "latency_ms": 1e305}), "must be less than or equal to 86400000"),
    ("slo.latency_ms", document(slo={"percentile": 99}), "is required"),
    ("slo", {key: value for key, value in document().items() if key != "slo"}, "is required"),
    ("slo.percentil", document(slo={"percentil": 99, "latency_ms": 1, "percentile": 99}), "did you mean 'percentile'?"),
    ("brust", document(brust=3), "did you mean 'burst'?"),
    ("zzz", document(zzz=3), "there are name, rate, burst"),
    ("topic", {"topic": document()}, "no such table; write name, rate, burst, slo"),
    ("mode", document(mode="quick"), "must be 'static', 'proportional', 'fitted', 'gdrl' or 'central'"),
    ("adaptation.window_s", document(adaptation={"window_s": 0}), "must be greater than or equal to 0.1"),
    ("adaptation.window_s", document(adaptation={"window_s": float("nan")}), "must be a finite number"),
    ("adaptation.interval_s", document(adaptation={"interval_s": 11.0}), "must be at most adaptation.window_s, 10"),
    ("adaptation.floor", document(adaptation={"floor": 0.6}), "must be less than or equal to 0.5"),
    ("adaptation.dead_band", document(adaptation={"dead_band": -1}), "must be greater than or equal to 0"),
    ("adaptation.partners", document(adaptation={"partners": "all"}), "must be 'random' or 'ring'"),
    ("adaptation.speed", document(adaptation={"speed": 1}), "no such key; there are window_s"),
    ("split", document(split="even"), "must be 'fitted' or 'proportional'"),
    ("lease", document(lease="forever"), 'must be "keep", or a length from 5s to 30m'),
    ("lease", document(lease="4999ms"), "ends before another distributor can take over"),
    ("lease", document(lease="1801s"), "needs clocks that run equally fast"),
    ("lease", document(lease="-15s"), "from 5s to 30m"),
    ("lease", document(lease=15), "must be a valid string"),
    ("placement", document(placement="best"), "must be 'srtm', 'maxmin', 'conc' or 'lb'"),
    ("name", document(name="."), 'not "." or ".."'),
    ("name", document(name=".."), 'not "." or ".."'),
    ("seed", document(seed=-1), "must be greater than or equal to 0"),
    ("on_excess", document(on_excess="drop"), "must be 'delay' or 'reject'"),
    ("document", [], "must be"),
    ("publishers", document(publishers={}), "must be a valid list"),
    ("publishers[0]", document(publishers=[{}]), "must be a table with"),
    ("publishers[0]", document(publishers=[3]), "must be a table with"),
    ("publishers[0].csv", document(publishers=[{"csv": "/etc/passwd"}]), "send its text as csv_text"),
    ("publishers[0].rate", document(publishers=[{"count": 1}]), "is required"),
    ("publishers[0].count", document(publishers=[{"count": 10**12, "rate": 1}]), "must be less than or equal"),
    (
        "publishers",
        document(publishers=[{"count": 10_000_000, "rate": 1, "id_prefix": f"{n}-"} for n in range(10**5)]),
        "a topic has at most 10,000,000",
    ),
    ("publishers[0].id_prefix", document(publishers=[{"count": 2, "rate": 1, "id_prefix": "x" * 256}]), "at most 255"),
    ("publishers[0].rats", document(publishers=[{"count": 1, "rate": 1, "rats": 2}]), "did you mean 'rate'?"),
    (
        "publishers[0].process",
        document(publishers=[{"count": 1, "rate": 1, "process": "x"}]),
        "'poisson' or 'periodic'",
    ),
    ("publishers[0].batch", document(publishers=[{"count": 1, "rate": 1, "batch": 0}]), "greater than or equal to 1"),
    (
        "publishers[1].rates",
        document(publishers=[{"count": 1, "rate": 1}, {"ids": ["a"], "rates": []}]),
        "one for each",
    ),
    ("publishers[0].rates[1]", document(publishers=[{"ids": ["a", "b"], "rates": [1, -2]}]), "must be greater than"),
    ("publishers[0].batch", document(publishers=[{"ids": ["a"], "rates": [1], "batch": [1, 2]}]), "one for each"),
    ("publishers[0][1].id", document(publishers=[{"ids": ["a", ""], "rates": [1, 1]}]), "must be 1 to 255 characters"),
    (
        "publishers[0].csv line 1",
        document(publishers=[{"csv_text": "id;rate\n"}]),
        "must be id,rate and, where",
    ),
    ("publishers[0].csv line 1", document(publishers=[{"csv_text": ""}]), "or a header that names"),
    ("publishers[0].csv", document(publishers=[{"csv_text": "id,rate\n"}]), "a line for each publisher"),
    (
        "publishers[0].csv line 1",
        document(publishers=[{"csv_text": "id,rate,group\na,1,\n"}]),
        "must be one of id, ",
    ),
    ("publishers[0].csv line 1", document(publishers=[{"csv_text": "id,rate,rate\na,1,1\n"}]), "each once"),
    ("publishers[0].csv line 3", with_csv("a,1,", "b,1"), "must have 3 fields"),
    ("publishers[0].csv line 2", placed("a,1,"), "must have 5 fields"),
    ("publishers[0].csv line 2.latitude", placed("a,1,,north,0"), "must be a number of degrees"),
    ("publishers[0].csv line 2.latitude", placed("a,1,,90.1,0"), "must be from -90 to 90 degrees"),
    ("publishers[0].csv line 2.longitude", placed("a,1,,0,nan"), "must be from -180 to 180 degrees"),
    ("publishers[0].csv line 2.longitude", placed("a,1,,5,"), "must be given where the other"),
    (
        "publishers[0].latitudes",
        document(publishers=[{"ids": ["a"], "rates": [1], "latitudes": [1, 2], "longitudes": [1]}]),
        "must have one for each of the 1 ids",
    ),
    ("publishers[0].csv line 3.rate", with_csv("a,1,", "b,-1,"), "must be from 0.000001"),
    ("publishers[0].csv line 2.rate", with_csv("a,nan,"), "must be from 0.000001"),
    ("publishers[0].csv line 2.rate", with_csv("a,ten,"), "must be a number of msg/s"),
    ("publishers[0].csv line 2.id", with_csv("a\x07,1,"), "none of them a control character"),
    ("publishers[0].csv line 2.id", with_csv("x" * 256 + ",1,"), "must be 1 to 255"),
    ("publishers[0].csv line 2.correlation_group", with_csv("a,1,\x1b[2J"), "none of them a control character"),
    ("publishers[0].csv line 2", with_csv('"a,1,'), "is not CSV"),
    ("publishers[0].csv line 4.id", with_csv("a,1,", "b,1,", "a,1,"), "is listed already, in publishers[0].csv line 2"),
    ("rate", with_csv("a,60,", "b,60,"), "must be at least the publishers' rates, which sum to 120 msg/s"),
    (
        "burst",
        document(on_excess="reject", publishers=[{"count": 1, "rate": 1, "batch": 11}]),
        "publisher 'publisher-0' sends 11 messages at once",
    ),
]


@pytest.mark.parametrize(("field", "body", "rule"), REFUSED, ids=[f"{n}-{row[0]}" for n, row in enumerate(REFUSED)])
def test_bad_input_is_refused_by_field_value_and_rule(field, body, rule):
    error = refusal(body)
    assert error.field == field
    assert rule is None or rule in error.rule
    assert str(error).startswith(f"{field}: ")


def test_a_publisher_listed_in_two_blocks_is_refused_naming_both_places():
    error = refusal(
        document(publishers=[{"count": 3, "rate": 1, "id_prefix": "s"}, {"ids": ["x", "s1"], "rates": [1, 1]}])
    )
    assert (error.field, error.value) == ("publishers[1][1].id", "s1")
    assert error.rule == "is listed already, in publishers[0]"


@pytest.mark.parametrize(
    ("text", "field"),
    [(None, "file"), ("name = ", "file"), (TOPIC, "publishers[0].csv")],
    ids=["no topic file", "no TOML", "no CSV file"],
)
def test_a_file_that_cannot_be_read_is_bad_input(tmp_path, text, field):
    if text is not None:
        (tmp_path / "topic.toml").write_text(text)
    with pytest.raises(BadInput) as caught:
        parse_topic_json(read_topic_file(tmp_path / "topic.toml"))
    assert caught.value.field == field


def test_rates_that_sum_to_the_rate_but_for_rounding_are_taken():
    spec = parse_topic_json(document(rate=100, publishers=[{"count": 300, "rate": 100 / 300}]))
    assert spec.publishers.load == pytest.approx(100)


def test_a_batch_above_the_burst_is_warned_of_under_delay():
    block = {"count": 1, "rate": 1, "batch": 11}
    assert parse_topic_json(document(publishers=[block])).warnings == (
        "publisher 'publisher-0' sends 11 messages at once: with a burst of 10 some of them always wait",
    )
    assert parse_topic_json(document(burst=11, publishers=[block])).warnings == ()
    assert parse_topic_json(document(burst="auto", publishers=[block])).warnings == ()


def test_publishers_are_added_at_the_end_and_removed():
    spec = parse_topic_json(with_csv("a,1,g", "b,2,h", "c,3,"))
    changed = parse_change(
        spec, {"remove": ["a"], "add": [{"id": "d", "rate": 4, "correlation_group": "h", "batch": 2}]}
    )
    assert changed == parse_topic_json(
        document(
            publishers=[{"ids": ["b", "c", "d"], "rates": [2, 3, 4], "groups": ["h", None, "h"], "batch": [1, 1, 2]}]
        )
    )
    assert spec.publishers.ids == ("a", "b", "c")


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        ({"remove": ["z"]}, NotFound, "'z'"),
        ({"add": [{"id": "a", "rate": 1}]}, BadInput, r"add\[0\]\.id: 'a': is listed already, in the topic"),
        ({"add": [{"id": "d", "rate": 99}]}, BadInput, "rate: 100.0: must be at least"),
        ({"add": [{"id": "d", "rte": 99}]}, BadInput, r"add\[0\]\.rte: 99: no such key; did you mean \'rate\'\?"),
        ({"ad": []}, BadInput, "did you mean 'add'"),
    ],
)
def test_a_change_that_breaks_a_rule_is_refused(body, error, words):
    spec = parse_topic_json(with_csv("a,1,g", "b,2,h"))
    with pytest.raises(error, match=words):
        parse_change(spec, body)


def test_a_publisher_may_be_replaced_in_one_change():
    spec = parse_topic_json(with_csv("a,1,g"))
    assert parse_change(spec, {"remove": ["a"], "add": [{"id": "a", "rate": 5}]}).publishers[0].rate == 5


@pytest.mark.slow
def test_a_million_publishers_are_read_and_written_as_they_are():
    spec = parse_topic_json(document(rate=10_000, publishers=[{"count": 1_000_000, "rate": 0.01, "group_size": 25}]))
    assert parse_topic_json(spec.to_json()) == spec
    assert len(spec.publishers.group_names) == 40_000


def test_contracts_of_publishers_survive_json_the_file_and_a_change():
    blocks = [
        {"count": 2, "rate": 1, "contract": "sensors"},
        {"ids": ["g", "h"], "rates": [1, 1], "contract": ["gateways", ""]},
        {"csv_text": "id,rate,correlation_group\nc,1,\n"},
    ]
    spec = parse_topic_json(document(publishers=blocks, contracts={"tenant": "acme"}))
    assert [each.contract for each in spec.publishers] == ["sensors", "sensors", "gateways", "", ""]
    assert parse_topic_json(spec.to_json()) == spec
    text = topic_file_text(spec.to_json())
    assert parse_topic_json(tomllib.loads(text)) == spec
    fewer = parse_change(spec, {"add": [{"id": "n", "rate": 1, "contract": "new"}], "remove": ["g"]})
    assert [each.contract for each in fewer.publishers] == ["sensors", "sensors", "", "", "new"]
    other = parse_topic_json(document(publishers=[{**blocks[0], "contract": "other"}, *blocks[1:]]))
    assert other != spec
    assert differences(spec.to_json(), other.to_json())[0] == "contracts.tenant: acme -> "
    assert "~ publisher-0: 1 msg/s, poisson, contract sensors -> 1 msg/s, poisson, contract other" in differences(
        spec.to_json(), other.to_json()
    )


def test_a_contract_that_all_publishers_name_is_common():
    def common(*blocks):
        return parse_topic_json(document(publishers=list(blocks))).publishers.common_contract

    one = {"count": 2, "rate": 1, "contract": "a"}
    assert common(one) == "a"
    assert common(one, {"count": 1, "rate": 1, "id_prefix": "x"}) == ""
    assert common(one, {"count": 1, "rate": 1, "id_prefix": "x", "contract": "b"}) == ""
    assert common({"count": 2, "rate": 1}) == common() == ""
