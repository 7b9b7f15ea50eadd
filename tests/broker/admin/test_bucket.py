"""Our routes at a broker: buckets, traces, histograms, limits. A refusal changes nothing."""

import json
from array import array

import pytest
import trio
import trio.testing

from broker.admin.bucket import trace_json


async def test_a_key_that_stands_twice_is_refused(admin):
    answer = await admin.ask("PUT", "/v1/topics/t/bucket", b'{"rate": 1, "burst": 1, "rate": 2}')
    problem = json.loads(answer.body)
    assert (answer.status, problem["field"], problem["rule"]) == (400, "rate", "must not stand twice in one object")


async def test_a_bucket_is_put_shown_changed_and_removed(admin):
    status, shown = await admin.json("PUT", "/v1/topics/t/bucket", {"rate": 0.5, "burst": 2.5, "on_excess": "reject"})
    assert status == 200
    assert (shown["rate"], shown["burst"], shown["on_excess"], shown["managed"]) == (0.5, 2.5, "reject", False)
    assert (shown["max_backlog"], shown["max_backlog_bytes"], shown["version"]) == (1_000_000, 1 << 30, 0)
    assert admin.engine.calls[-1] == ("set_bucket", "t", 500_000, 2_500_000, 0, True, None)
    status, shown = await admin.json("PUT", "/v1/topics/t/bucket", {"rate": 1, "burst": 1, "max_backlog": 0})
    assert (status, shown["max_backlog"], shown["fill"]) == (200, 0, 1.0)
    assert (shown["timestamp_bias_max_seconds"], shown["merged_read_share"]) == (0.0, 0.0)
    assert (shown["lease_left_seconds"], shown["lapses"]) == (None, 0)
    assert admin.engine.calls[-1][-2] is False  # only a bucket that was not there starts full
    assert (await admin.json("GET", "/v1/topics/t/bucket"))[1] == shown
    assert set(shown["latency"]) == {"access", "processing", "consumer_wait", "total"}
    assert set(shown["latency"]["access"]["last_60s"]) == {"count", "p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms"}
    assert (await admin.ask("DELETE", "/v1/topics/t/bucket")).status == 200
    assert (await admin.ask("DELETE", "/v1/topics/t/bucket")).status == 404
    assert (await admin.ask("GET", "/v1/topics/t/bucket")).status == 404


async def test_a_bucket_is_on_disk_before_it_is_answered(admin):
    await admin.json("PUT", "/v1/topics/t/bucket", {"rate": 1, "burst": 1})
    assert (len(admin.written), list(admin.buckets.all)) == (1, ["t"])
    await admin.ask("DELETE", "/v1/topics/t/bucket")
    assert (len(admin.written), list(admin.buckets.all)) == (2, [])


async def test_a_bucket_is_shown_with_how_exact_the_stamps_of_the_whole_broker_are(admin):
    await admin.json("PUT", "/v1/topics/t/bucket", {"rate": 1, "burst": 1})
    admin.engine.sharing = {"timestamp_bias_max_ns": 3_000_000, "publish_reads": 8, "merged_reads": 2}
    _, shown = await admin.json("GET", "/v1/topics/t/bucket")
    assert (shown["timestamp_bias_max_seconds"], shown["merged_read_share"]) == (0.003, 0.25)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"rate": 0, "burst": 1}, "rate"),
        ({"rate": -5, "burst": 1}, "rate"),
        ({"rate": 1e-7, "burst": 1}, "rate"),
        ({"rate": 1e10, "burst": 1}, "rate"),
        ({"rate": "fast", "burst": 1}, "rate"),
        ({"rate": True, "burst": 1}, "rate"),
        ({"rate": None, "burst": 1}, "rate"),
        ({"burst": 1}, "rate"),
        ({"rate": 1}, "burst"),
        ({"rate": 1, "burst": 0.999}, "burst"),
        ({"rate": 1, "burst": 1, "on_excess": "drop"}, "on_excess"),
        ({"rate": 1, "burst": 1, "on_excess": ["delay"]}, "on_excess"),
        ({"rate": 1, "burst": 1, "max_backlog": -1}, "max_backlog"),
        ({"rate": 1, "burst": 1, "max_backlog": 1.5}, "max_backlog"),
        ({"rate": 1, "burst": 1, "max_backlog_bytes": True}, "max_backlog_bytes"),
        ({"rate": 1, "burst": 1, "bust": 2}, "bust"),
        ([1, 2], "body"),
        ("rate", "body"),
    ],
)
async def test_a_bad_bucket_is_refused_naming_field_value_and_rule(admin, value, field):
    status, refusal = await admin.json("PUT", "/v1/topics/t/bucket", value)
    assert status == 400
    assert refusal["field"] == field
    assert refusal["rule"]
    if field in value and not isinstance(value, str):
        assert refusal["value"] == value[field]
    assert admin.engine.calls == []


@pytest.mark.parametrize("body", [b"", b"{", b'{"rate": NaN, "burst": 1}', b"\xff", b'{"rate": 1e999, "burst": 1}'])
async def test_a_body_that_is_no_json_is_refused(admin, body):
    response = await admin.ask("PUT", "/v1/topics/t/bucket", body)
    assert response.status == 400
    assert admin.engine.calls == []


async def test_bad_topic_names_are_refused_in_our_routes(admin):
    status, refusal = await admin.json("PUT", "/v1/topics/t$/bucket", {"rate": 1, "burst": 1})
    assert (status, refusal["field"], refusal["value"]) == (400, "topic", "t$")


async def test_a_managed_bucket_is_shown_but_not_changed(admin):
    admin.engine.set_bucket("t", 1_000_000, 1_000_000, False, 1, 1, 5, True)
    admin.managed.add("t")
    before = list(admin.engine.calls)
    status, shown = await admin.json("GET", "/v1/topics/t/bucket")
    assert (status, shown["managed"], shown["version"]) == (200, True, 5)
    for method in ("PUT", "DELETE"):
        status, refusal = await admin.json(method, "/v1/topics/t/bucket", {"rate": 9, "burst": 9})
        assert (status, refusal["title"], refusal["value"]) == (409, "conflict", "t")
    assert admin.engine.calls == before


def test_a_long_trace_is_encoded_in_pieces_that_make_one_document():
    count = 25_000
    publishers = [f"p{number}" for number in range(count)]
    numbers = array("q", range(count)).tobytes()
    pieces = list(trace_json(publishers, array("I", range(count)).tobytes(), *[numbers] * 5))
    assert max(len(piece) for piece in pieces) < 100_000
    found = json.loads(b"".join(pieces))
    assert found["publishers"] == publishers
    assert all(found[name] == list(range(count)) for name in found.keys() - {"publishers"})


@pytest.mark.parametrize("target", ["/metrics", "/stats", "/stats?format=json", "/v1/topics/t/trace"])
async def test_large_answers_are_made_in_threads_two_at_a_time(admin, monkeypatch, target):
    await admin.json("PUT", "/v1/topics/t/bucket", {"rate": 1, "burst": 1})
    limits, begun, end, read_on_loop = [], [], trio.Event(), []
    for name in ("snapshot", "contracts", "trace", "latency_buckets"):
        monkeypatch.setattr(admin.engine, name, lambda *_, name=name: read_on_loop.append(name))

    async def slow(make, *, limiter):
        async with limiter:
            limits.append(limiter.total_tokens)
            begun.append(make)
            await end.wait()
            return make()

    monkeypatch.setattr(trio.to_thread, "run_sync", slow)
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(admin.ask, "GET", target)
        await trio.testing.wait_all_tasks_blocked()
        assert len(begun) == 2
        assert not read_on_loop, "a thread reads the engine, too"
        monkeypatch.undo()
        end.set()
    assert limits == [2] * 4


async def test_the_trace_is_columnar(admin):
    admin.engine.set_bucket("t", 1_000_000, 1_000_000, False, 1, 1, 5, True)
    assert (await admin.json("GET", "/v1/topics/t/trace"))[1] == {
        "publishers": ["a", "b"],
        "publisher": [0, 1],
        "arrival_ns": [10, 10],
        "due_ns": [20, 20],
        "released_ns": [30, 30],
        "sent_ns": [0, 0],
        "share_version": [7, 7],
    }
    assert (await admin.json("GET", "/v1/topics/nowhere/trace"))[0] == 404


async def test_our_routes_refuse_with_problem_json(admin):
    for method, path, status in (("GET", "/v1/nothing", 404), ("POST", "/v1/topics/t/bucket", 405)):
        response = await admin.ask(method, path)
        assert (response.status, response.content_type) == (status, "application/problem+json")
    assert dict(response.headers)["Allow"] == "DELETE, GET, OPTIONS, PUT"
    assert (await admin.json("GET", "/v1/topics/t/bucket?format=xml"))[1]["field"] == "format"


async def test_the_raw_histograms_are_read_back_by_the_hdr_library(admin, tmp_path):
    from hdrh.histogram import HdrHistogram
    from hdrh.log import HistogramLogReader

    recorded = HdrHistogram(1, 60_000_000_000, 3)
    for value_ns in (1_000, 2_000_000):
        recorded.record_value(value_ns)
    admin.engine.create_topic("t")
    admin.engine.histogram = lambda _topic, kind, _window: recorded.encode() if kind != "total" else None
    response = await admin.ask("GET", "/v1/topics/t/bucket?format=hlog")
    (tmp_path / "t.hlog").write_bytes(response.body)
    reader = HistogramLogReader(str(tmp_path / "t.hlog"), recorded)
    tags = []
    while (histogram := reader.get_next_interval_histogram()) is not None:
        tags.append(histogram.get_tag())
        assert histogram.get_total_count() == 2
        assert histogram.get_start_time_stamp() >= 1_700_000_000_000
    reader.close()
    assert tags == [f"{k}.{w}" for k in ("access", "processing", "consumer_wait") for w in ("since_start", "last_60s")]


@pytest.mark.parametrize(
    ("path", "name"), [("/topic/create?topic=t", ("t", "")), ("/channel/create?topic=u&channel=c", ("u", "c"))]
)
async def test_a_limit_refuses_topics_and_channels_made_by_http_and_changes_nothing(admin, path, name):
    admin.engine.create_topic("u")
    admin.engine.refusals[name] = "there may be 2 topics (max_topics)"
    assert await admin.json("POST", path) == (503, {"message": "there may be 2 topics (max_topics)"})
    assert list(admin.engine.topics) == ["u"]
    assert not admin.engine.topics["u"].channels
    del admin.engine.refusals[name]
    assert (await admin.ask("POST", path)).status == 200
