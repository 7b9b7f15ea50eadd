"""Scenario files: what they mean as plans, and how each wrong field is refused."""

import copy
import tomllib
from pathlib import Path

import pytest

from bench.scenarios.file import read_scenario, scenario
from srtm.errors import BadInput

EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "bench" / "scenarios").glob("*.toml"))
FILE = """
address = "127.0.0.1:4150"
duration_s = 2.0
warmup_s = 0.5
seed = 9

[[topics]]
name = "a"
channels = ["x", "y"]
subscribers = 2
rdy = 7
[[topics.publishers]]
count = 4
rate = 10
group_size = 2
noise_ms = 3.0
[[topics.publishers]]
count = 2
rate = 5.0
process = "periodic"
batch = 5
id_prefix = "p"

[[topics]]
name = "b"
[[topics.publishers]]
trace = "b.csv"
id_prefix = "b-"

[promise]
percentile = 99.9
latency_ms = 2.5
"""
TRACE = "arrival_ns,publisher\n1000000100,one\n1000000000,two\n3000000000,one\n9000000000,two\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "b.csv").write_text(TRACE)
    (tmp_path / "late.csv").write_text("publisher,arrival_ns\n")
    (tmp_path / "short.csv").write_text("arrival_ns\n5\n7\n")
    return tmp_path


def written(folder, text=FILE):
    (folder / "mine.toml").write_text(text)
    return folder / "mine.toml"


def test_a_file_becomes_one_plan_with_a_target_for_each_topic(folder):
    found = read_scenario(written(folder))
    plan = found.plan("h:1")
    assert (found.name, found.address, found.start, found.seed) == ("mine", "127.0.0.1:4150", None, 9)
    assert (plan.targets, plan.topics) == (["h:1", "h:1"], ["a", "b"])
    assert (plan.duration_s, plan.warmup_s, plan.slo_ms, plan.percentile) == (2.0, 0.5, 2.5, 99.9)
    assert [(one.target, one.channel, one.rdy) for one in plan.subscribers] == [
        *[(0, "x", 7)] * 2,
        *[(0, "y", 7)] * 2,
        (1, "bench", 2500),
    ]


def test_publishers_of_all_blocks_are_columns_one_after_the_other(folder):
    publishers = read_scenario(written(folder)).plan("h:1").publishers
    assert publishers.ids == ["a-1-0", "a-1-1", "a-1-2", "a-1-3", "p0", "p1", "b-one", "b-two"]
    assert publishers.target == [0] * 6 + [1] * 2
    assert publishers.group == [0, 0, 1, 1, -1, -1, -1, -1]
    assert publishers.batch == [1] * 4 + [5] * 2 + [1] * 2
    assert publishers.process == ["poisson"] * 4 + ["periodic"] * 2 + ["trace"] * 2
    assert publishers.offset_ns == [0, 3_000_000, 0, 3_000_000, 0, 0, 0, 0]


def test_a_recording_counts_from_its_first_message_and_is_cut_at_the_end_of_the_run(folder):
    publishers = read_scenario(written(folder)).plan("h:1").publishers
    assert publishers.instants_ns[6:] == [[100, 2_000_000_000], [0]]
    assert publishers.rate[6:] == [2 / 2.5, 1 / 2.5]


def test_a_scenario_of_recordings_alone_lasts_as_long_as_they_do(folder):
    text = 'address = "h:1"\n[[topics]]\nname = "b"\n[[topics.publishers]]\ntrace = "b.csv"\n'
    found = read_scenario(written(folder, text))
    assert found.duration_s == pytest.approx(8.0 + 1e-3 - 1.0)
    assert found.plan("h:1").publishers.instants_ns == [[100, 2_000_000_000], [0, 8_000_000_000]]


def test_a_recording_that_names_nobody_is_one_publisher(folder):
    text = 'address = "h:1"\nwarmup_s = 0\n[[topics]]\nname = "b"\n[[topics.publishers]]\ntrace = "short.csv"\n'
    publishers = read_scenario(written(folder, text)).plan("h:1").publishers
    assert (publishers.ids, publishers.instants_ns) == (["recorded"], [[0, 2]])


def test_options_replace_what_the_file_says(folder):
    found = read_scenario(written(folder), seed=3, seconds=0.5)
    assert (found.seed, found.duration_s, found.settings["seed"]) == (3, 0.5, 3)


@pytest.mark.parametrize(
    ("path", "value", "field", "rule"),
    [
        (("protocol",), "amqp", "protocol", "must be 'nsq', 'nats', 'mqtt' or 'redis'"),
        (("protocol",), "mqtt", "topics[0].subscribers", "must be 1: only NSQ"),
        (("qos",), 1, "qos", "with protocol mqtt"),
        (("qos",), 3, "qos", "must be 0, 1 or 2"),
        (("address",), None, "address", "must be given, or else start"),
        (("start",), "srtm", "address", "must be given, or else start"),
        (("start",), "kafka", "start", "must be 'srtm', 'nsqd', 'nats', 'mosquitto' or 'redis'"),
        (("address",), "4150", "address", "must be HOST:PORT"),
        (("address",), ":4150", "address", "must be HOST:PORT"),
        (("duration_s",), 0, "duration_s", "must be greater than or equal to 0.001"),
        (("duration_s",), "2s", "duration_s", "must be a valid number"),
        (("duration_s",), None, "duration_s", "is required"),
        (("duration",), 2, "duration", "did you mean 'duration_s'?"),
        (("warmup_s",), -1.0, "warmup_s", "must be greater than or equal to 0"),
        (("drain_s",), float("nan"), "drain_s", "must be a finite number"),
        (("message_size",), 31, "message_size", "must be greater than or equal to 32"),
        (("seed",), -1, "seed", "must be greater than or equal to 0"),
        (("topics",), [], "topics", "must have"),
        (("topics", 0), 5, "topics[0]", "must be"),
        (("topics", 1, "name"), "a", "topics[1].name", "must not be listed twice"),
        (("topics", 0, "name"), "a b", "topics[0].name", "must be 1 to 64"),
        (("topics", 0, "channels"), ["x", "x"], "topics[0].channels", "must not be listed twice"),
        (("topics", 0, "channels"), [""], "topics[0].channels", "must be 1 to 64"),
        (("topics", 0, "channels"), [], "topics[0].channels", "must have"),
        (("topics", 0, "subscribers"), 0, "topics[0].subscribers", "must be greater than or equal to 1"),
        (("topics", 0, "rdy"), 0, "topics[0].rdy", "must be greater than or equal to 1"),
        (("topics", 0, "publishers"), [], "topics[0].publishers", "must have"),
        (("topics", 0, "publishers", 0), {"rate": 1.0}, "topics[0].publishers[0]", "with count or trace"),
        (("topics", 0, "publishers", 0), {"rate": 1.0, "cuont": 4}, "topics[0].publishers[0].cuont", "count"),
        (("topics", 0, "publishers", 0, "count"), 0, "topics[0].publishers[0].count", "must be greater than or equal"),
        (("topics", 0, "publishers", 0, "rate"), 0, "topics[0].publishers[0].rate", "must be greater than 0"),
        (("topics", 0, "publishers", 0, "rate"), None, "topics[0].publishers[0].rate", "is required"),
        (("topics", 0, "publishers", 0, "process"), "pareto", "topics[0].publishers[0].process", "must be 'poisson'"),
        (("topics", 0, "publishers", 0, "batch"), 1_000_000, "topics[0].publishers[0].batch", "at most 5 MiB"),
        (("topics", 0, "publishers", 0, "group_size"), 1, "topics[0].publishers[0].noise_ms", "must be 0 without"),
        (("topics", 0, "publishers", 0, "noise_ms"), -1, "topics[0].publishers[0].noise_ms", "must be greater"),
        (("topics", 0, "publishers", 1, "id_prefix"), "a-1-", "topics[0].publishers[1].id_prefix", "listed twice"),
        (("topics", 0, "publishers", 1, "colour"), 1, "topics[0].publishers[1].colour", "no such key"),
        (("topics", 1, "publishers", 0, "trace"), "no.csv", "topics[1].publishers[0].trace", "can be read"),
        (("topics", 1, "publishers", 0, "trace"), "late.csv", "topics[1].publishers[0].trace", "at least one"),
        (("topics", 1, "publishers", 0, "trace"), "mine.toml", "topics[1].publishers[0].trace", "CSV whose header"),
        (("topics", 1, "publishers", 0, "rate"), 1.0, "topics[1].publishers[0].rate", "not be given beside trace"),
        (("promise", "percentile"), 100, "promise.percentile", "must be less than 100"),
        (("promise", "latency_ms"), 0, "promise.latency_ms", "must be greater than 0"),
        (("promise", "latency_ms"), None, "promise.latency_ms", "is required"),
        (("promise", "latency"), 1, "promise.latency", "did you mean 'latency_ms'?"),
        (("promise",), 5, "promise", "must be"),
    ],
)
def test_a_wrong_field_is_refused_by_its_name_in_the_file(folder, path, value, field, rule):
    document = copy.deepcopy(tomllib.loads(FILE))
    *parents, key = path
    place = document
    for part in parents:
        place = place[part]
    if value is None:
        del place[key]
    else:
        place[key] = value
    written(folder)
    with pytest.raises(BadInput) as caught:
        scenario("mine", document, folder)
    assert caught.value.field == field
    assert rule in caught.value.rule


SHORT = 'duration_s = 1.0\n[[topics]]\nname = "{}"\n[[topics.publishers]]\ncount = 1\nrate = 1.0\n'


@pytest.mark.parametrize(
    ("where", "protocol"),
    [
        ('address = "h:1"', "nsq"),
        ('address = "h:1"\nprotocol = "redis"', "redis"),
        ('start = "nsqd"', "nsq"),
        ('start = "mosquitto"', "mqtt"),
        ('start = "nats"\nprotocol = "nats"', "nats"),
    ],
)
def test_the_protocol_is_that_of_the_broker_to_start_or_as_stated_or_nsq(folder, where, protocol):
    found = read_scenario(written(folder, f"{where}\n{SHORT.format('t')}"))
    assert found.plan("h:1").protocol == protocol


def test_a_protocol_that_the_broker_to_start_does_not_speak_is_refused(folder):
    with pytest.raises(BadInput, match="protocol: 'nats': must be 'nsq', which srtm speaks, or left out"):
        read_scenario(written(folder, f'start = "srtm"\nprotocol = "nats"\n{SHORT.format("t")}'))


def test_a_topic_that_a_protocol_cannot_name_is_refused_where_it_stands(folder):
    with pytest.raises(BadInput, match=r"topics\[0\].name: 'a..b': must be words"):
        read_scenario(written(folder, f'start = "nats"\n{SHORT.format("a..b")}'))


def test_a_warm_up_longer_than_the_recording_is_refused(folder):
    text = 'address = "h:1"\n[[topics]]\nname = "b"\n[[topics.publishers]]\ntrace = "short.csv"\n'
    with pytest.raises(BadInput, match=r"warmup_s: 1.0: must be shorter than the recordings, which last 0.001"):
        read_scenario(written(folder, text))


@pytest.mark.parametrize(("text", "rule"), [("a = ", "must be TOML"), (None, "must be a file that can be read")])
def test_a_file_that_is_no_scenario_is_refused(folder, text, rule):
    path = folder / "none.toml" if text is None else written(folder, text)
    with pytest.raises(BadInput, match=f"file: .*{rule}"):
        read_scenario(path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_a_scenario(path):
    assert read_scenario(path).name == path.stem
