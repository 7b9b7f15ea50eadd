"""Which of several measured capacities counts, and what a document of one must be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.errors import BadInput
from srtm.topics.capacity import Capacity, Class, Machine, capacity_for, effective_mcap, parse_capacity, parse_slo
from srtm.topics.spec import PERCENTILES, Slo

SLO = Slo(percentile=99, latency_ms=1.0)
DOCUMENT = {"mcap": 500.0, "slo": {"percentile": 99, "latency_ms": 1.0}}


def capacity(mcap: float, slo: str = "p99:1ms", process: str = "poisson", batch: int = 1, count: int = 100) -> Capacity:
    return Capacity(
        mcap=mcap,
        slo=parse_slo(slo),
        traffic=Class(process=process, batch=batch, publishers=count),  # type: ignore[arg-type]
    )


slos = st.builds(Slo, percentile=st.sampled_from(PERCENTILES), latency_ms=st.floats(0.1, 100))
classes = st.builds(
    Class, process=st.sampled_from(["poisson", "periodic"]), batch=st.integers(1, 50), publishers=st.integers(1, 5000)
)
capacities = st.builds(Capacity, mcap=st.floats(1, 1e6), slo=slos, traffic=classes)


def test_the_very_same_promise_and_class_counts_before_all_others():
    known = [capacity(900), capacity(500, "p99.9:1ms"), capacity(300, batch=10), capacity(2000, "p99:5ms")]
    assert capacity_for(known, SLO, Class()) == known[0]


def test_else_the_nearest_that_was_measured_for_something_harder():
    known = [capacity(300, batch=100), capacity(600, batch=10), capacity(2000, batch=1), capacity(5000, "p99:9ms")]
    found = capacity_for(known, SLO, Class(batch=5))
    assert found is not None
    assert found.mcap == 600


def test_a_promise_stricter_than_all_that_was_measured_gets_the_smallest():
    known = [capacity(900), capacity(700, batch=10)]
    found = capacity_for(known, Slo(percentile=99, latency_ms=0.5), Class())
    assert found is not None
    assert found.mcap == 700


def test_periodic_traffic_may_go_by_poissons_figure_and_not_the_other_way_round():
    poisson, periodic = capacity(500), capacity(900, process="periodic")
    assert capacity_for([poisson], SLO, Class(process="periodic")) == poisson
    assert capacity_for([poisson, periodic], SLO, Class(process="poisson")) == poisson
    assert capacity_for([poisson, periodic], SLO, Class(process="periodic")) == periodic


@given(st.lists(capacities, min_size=1), slos, classes)
def test_what_counts_is_one_of_those_measured_for_something_as_hard_or_the_smallest_of_all(known, slo, traffic):
    found = capacity_for(known, slo, traffic)
    assert found in known
    harder = found.slo.percentile >= slo.percentile and found.slo.latency_ms <= slo.latency_ms
    assert (harder and found.traffic.batch >= traffic.batch) or found.mcap == min(one.mcap for one in known)


@given(st.floats(0, 1e6), st.lists(capacities), st.lists(st.tuples(slos, classes)))
def test_one_more_promise_on_a_broker_never_raises_what_it_carries(stated, known, asked):
    figures = [effective_mcap(stated, known, asked[:count]) for count in range(1, len(asked) + 1)]
    assert figures == sorted(figures, reverse=True)
    if stated and figures:
        assert figures[0] <= stated


def test_without_a_measurement_what_is_stated_counts_and_without_that_nothing_is_known():
    assert effective_mcap(600, [], [(SLO, Class())]) == 600
    assert effective_mcap(0, [], [(SLO, Class())]) == 0
    assert effective_mcap(0, [capacity(900), capacity(500, "p99.9:1ms")], []) == 500


@given(capacities)
def test_a_capacity_reads_back_as_it_was_written(one):
    assert parse_capacity(one.to_json()) == one


def test_all_fields_of_a_measured_one_read_back():
    machine = Machine(cores=2, kernel="6.1", cpu="Some CPU")
    one = Capacity(
        mcap=1.5, slo=SLO, traffic=Class(), measured="2026-11-21T21:52:18+00:00", source="bench", machine=machine,
        beside=3.0, limited_by="other topics", lab_service_time_ns=5, disturbed=("steal 3.0%",),
    )  # fmt: skip
    assert parse_capacity(one.to_json()) == one


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"mcap": 0}, "mcap"),
        ({"mcap": float("inf")}, "mcap"),
        ({"mcap": "many"}, "mcap"),
        ({"slo": {"percentile": 98, "latency_ms": 1.0}}, "slo.percentile"),
        ({"slo": {"percentile": 99, "latency_ms": 0}}, "slo.latency_ms"),
        ({"slo": {"percentile": 99, "latency_ms": 1e13}}, "slo.latency_ms"),
        ({"process": "bursty"}, "process"),
        ({"batch": 0}, "batch"),
        ({"publishers": 0}, "publishers"),
        ({"source": "rumour"}, "source"),
        ({"machine": {"cores": 0, "kernel": "", "cpu": ""}}, "machine.cores"),
        ({"beside": -1}, "beside"),
        ({"limited_by": "luck"}, "limited_by"),
        ({"disturbed": ["x" * 501]}, "disturbed[0]"),
        ({"mcpa": 3}, "mcpa"),
    ],
)
def test_a_document_that_breaks_a_rule_is_refused_by_the_name_of_the_field(change, field):
    with pytest.raises(BadInput) as refused:
        parse_capacity({**DOCUMENT, **change})
    assert refused.value.field == field


def test_a_promise_is_written_as_percentile_and_latency():
    assert parse_slo("p99.9:2.5ms") == Slo(percentile=99.9, latency_ms=2.5)


@pytest.mark.parametrize(
    "text", ["", "99:1ms", "p99:1s", "p98:1ms", "p99:0ms", "p99:-1ms", "pnan:1ms", "p99:infms", "p99:1e13ms"]
)
def test_any_other_text_is_no_promise(text):
    with pytest.raises(BadInput, match="slo"):
        parse_slo(text)
