"""Messages are read and written as the stock library of protocol buffers does."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from limiting.envoy.protobuf import fields, varint
from limiting.envoy.rate_limits import (
    OK,
    OVER_LIMIT,
    Descriptor,
    JsonRequest,
    RateLimitRequest,
    RateLimitResponse,
    Status,
    read_request,
    response_json,
    write_response,
)
from srtm.contracts.envoy import UNITS, RateLimit
from srtm.errors import BadInput, PeerError
from tests.support.envoy_messages import MESSAGES, request

words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
descriptors = st.builds(
    Descriptor,
    st.lists(st.tuples(words, st.one_of(words, st.just(""))), min_size=1, max_size=4).map(tuple),
    st.none() | st.integers(0, 2**64 - 1),
    st.just(False),
)
requests = st.builds(
    RateLimitRequest, words, st.lists(descriptors, min_size=1, max_size=4).map(tuple), st.integers(0, 2**32 - 1)
)


def stranger(asked: RateLimitRequest) -> Any:
    made = MESSAGES["Request"](domain=asked.domain, hits_addend=asked.hits)
    for each in asked.descriptors:
        added = made.descriptors.add()
        for key, value in each.entries:
            added.entries.add(key=key, value=value)
        if each.hits is not None:
            added.hits_addend.value = each.hits
            added.hits_addend.SetInParent()
    return made


@given(requests)
def test_a_strangers_request_is_read(asked: RateLimitRequest) -> None:
    assert read_request(stranger(asked).SerializeToString()) == asked


@given(requests)
def test_the_same_request_is_read_as_json(asked: RateLimitRequest) -> None:
    # Entry keeps empty values, which ProtoJSON leaves out; both are read alike.
    made = json_format.MessageToJson(stranger(asked)).replace('{\n          "value"', '{\n "value"')
    document = msgspec.json.decode(made)
    for given_hits, each in zip(asked.descriptors, document["descriptors"], strict=True):
        if given_hits.hits is not None:  # our stand-in of google.protobuf.UInt64Value is a plain message
            each["hitsAddend"] = str(given_hits.hits)
    assert msgspec.convert(document, JsonRequest).request() == asked


limits = st.none() | st.builds(RateLimit, st.integers(0, 2**32 - 1), st.sampled_from([*UNITS, "UNKNOWN"]))
statuses = st.builds(
    Status, st.sampled_from([OK, OVER_LIMIT]), limits, words, st.integers(0, 2**40), st.integers(0, 10**18)
)


@given(st.lists(statuses, min_size=1, max_size=3), st.lists(st.tuples(words, words), max_size=2), st.binary())
def test_a_stranger_reads_our_response(said: list[Status], headers: list[tuple[str, str]], body: bytes) -> None:
    response = RateLimitResponse(tuple(said), headers, body)
    read = MESSAGES["Response"].FromString(write_response(response))
    assert read.overall_code == response.code
    assert [(each.key, each.value) for each in read.response_headers_to_add] == headers
    assert read.raw_body == body
    for status, found in zip(said, read.statuses, strict=True):
        assert found.code == status.code
        assert found.HasField("current_limit") == (status.limit is not None)
        if status.limit is not None:
            unit = UNITS.get(status.limit.unit, (0, 0))[0]
            limit = found.current_limit
            assert (limit.requests_per_unit, limit.unit, limit.name) == (status.limit[0], unit, status.name)
            assert found.limit_remaining == min(status.remaining, 2**32 - 1)
            until = found.duration_until_reset
            assert until.seconds * 10**9 + until.nanos == status.reset_ns


@settings(max_examples=500)
@given(st.binary(max_size=60))
def test_whatever_comes_is_a_request_or_a_clear_error(data: bytes) -> None:
    with suppress(PeerError, BadInput):
        assert read_request(data).descriptors


@given(requests, st.data())
def test_a_request_with_a_byte_changed_is_one_or_a_clear_error(asked: RateLimitRequest, data: st.DataObject) -> None:
    content = bytearray(stranger(asked).SerializeToString())
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        ours = read_request(bytes(content))
    except (PeerError, BadInput):
        return
    theirs = MESSAGES["Request"].FromString(bytes(content))
    assert (ours.domain, ours.hits % 2**32) == (theirs.domain, theirs.hits_addend)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x00\x01", "number 0"),
        (b"\x0b", "wire type 3"),
        (b"\x0a\x05abc", "ends after"),
        (b"\x18" + b"\xff" * 9, "without an end"),
        (b"\x18" + b"\xff" * 10 + b"\x01", "64 bits"),
        (b"\x18" + b"\xff" * 9 + b"\x02", "64 bits"),
        (b"\x0a\x01\xff", "UTF-8"),
        (b"\x08\x01", "a number where"),
        (b"\x1a\x01a", "bytes where"),
    ],
)
def test_bytes_that_are_no_message_are_refused(data: bytes, what: str) -> None:
    with pytest.raises(PeerError, match=what):
        read_request(data)


def test_fields_that_are_not_known_are_skipped() -> None:
    known = request("edge", {"a": "b"}).SerializeToString()
    more = varint(9 << 3 | 1) + bytes(8) + varint(10 << 3 | 5) + bytes(4) + varint(11 << 3) + varint(2**63)
    assert read_request(more + known) == read_request(known)
    assert [number for number, _ in fields(more)] == [9, 10, 11]


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (request("", {"a": "b"}), "domain"),
        (request("edge"), "descriptors"),
        (request("edge", *[{"a": "b"}] * 65), "descriptors"),
        (request("edge", {}), r"descriptors\[0\].entries"),
        (request("edge", {"a": "b"}, {"": "b"}), r"descriptors\[1\].entries"),
    ],
)
def test_requests_that_cannot_be_are_refused(asked: Any, field: str) -> None:
    with pytest.raises(BadInput, match=field):
        read_request(asked.SerializeToString())


def test_a_limit_that_a_request_brings_is_refused_clearly() -> None:
    asked = request("edge", {"a": "b"})
    asked.descriptors[0].limit.requests_per_unit = 5
    with pytest.raises(BadInput, match="write a contract"):
        read_request(asked.SerializeToString())


def test_a_response_in_json_has_what_is_not_zero() -> None:
    over = Status(OVER_LIMIT, RateLimit(5, "MINUTE"), "burst", 0, 1_500_000_000)
    some = Status(OK, RateLimit(5, "UNKNOWN"), "open", 3, 0)
    assert response_json(RateLimitResponse((over, some, Status()), [("Retry-After", "2")], b"{}")) == {
        "overallCode": "OVER_LIMIT",
        "statuses": [
            {
                "code": "OVER_LIMIT",
                "currentLimit": {"name": "burst", "requestsPerUnit": 5, "unit": "MINUTE"},
                "durationUntilReset": "1.5s",
            },
            {
                "code": "OK",
                "currentLimit": {"name": "open", "requestsPerUnit": 5, "unit": "UNKNOWN"},
                "limitRemaining": 3,
                "durationUntilReset": "0s",
            },
            {"code": "OK"},
        ],
        "responseHeadersToAdd": [{"key": "Retry-After", "value": "2"}],
        "rawBody": "e30=",
    }


@pytest.mark.parametrize(("own", "usual"), [("many", 0), (-1, 0), (1, -1)])
def test_an_addend_in_json_that_cannot_be_is_refused(own: int | str, usual: int) -> None:
    descriptors = [{"entries": [{"key": "k"}], "hitsAddend": own}]
    document = {"domain": "d", "descriptors": descriptors, "hitsAddend": usual}
    with pytest.raises(BadInput, match="hits"):
        msgspec.convert(document, JsonRequest).request()
