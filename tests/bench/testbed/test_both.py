"""The table of plain and of emulated links: what is asked of each, and what it shows."""

from dataclasses import replace

import pytest

from bench.testbed.both import EMULATED, PLAIN, BothOptions, Line, capacity_left, judged, markdown
from bench.testbed.net.layout import Link
from bench.testbed.outcome import Outcome, Part
from bench.testbed.session import Traffic

PART = Part(
    broker="broker1",
    messages=10,
    p50_ms=0.65,
    p99_ms=4.0,
    p999_ms=5.0,
    max_ms=6.0,
    least_ms=0.5,
    to_p50_ms=0.1,
    to_p99_ms=0.2,
    access_p99_ms=0.3,
    inside_p50_ms=0.4,
    inside_p99_ms=0.5,
    from_p50_ms=0.1,
    from_p99_ms=0.2,
)


def line(link: Link = PLAIN, lost: int = 0, reasons: tuple[str, ...] = (), **part: float) -> Line:
    made = replace(PART, **part)
    found = Outcome(
        parts=[made, replace(made, broker="all")],
        sent=10,
        received=10 - lost,
        lost=lost,
        duplicates=0,
        refused=0,
        lateness_p99_ms=0.01,
        datagrams=2_000,
        datagrams_lost=4,
        reasons=reasons,
    )
    return Line(link=link, found=found, bucket="r = 2,200, b = 27", uses=["no rate limit"], left=87_654.3)


@pytest.mark.parametrize(("to_ms", "kept"), [(3.9, False), (4.0, True), (5.5, True), (5.6, False)])
def test_the_network_takes_what_two_links_are_asked_for_and_little_more(to_ms: float, kept: bool) -> None:
    _, to, *_ = line(EMULATED, to_p50_ms=to_ms, from_p50_ms=4.5).checks()
    assert (to.kept, to.bound) == (kept, "4 to 5.5 ms")


@pytest.mark.parametrize(("p50_ms", "kept"), [(9.4, True), (9.9, True), (10.0, False), (8.8, False)])
def test_a_way_is_as_long_as_its_parts(p50_ms: float, kept: bool) -> None:
    *_, parts = line(EMULATED, to_p50_ms=4.5, from_p50_ms=4.5, p50_ms=p50_ms).checks()
    assert parts.kept == kept
    assert parts.measured == f"{p50_ms:.3g} and 9.4 ms"


def test_a_message_that_is_lost_and_a_generator_that_was_late_spoil_it() -> None:
    assert not judged([line(lost=1)], BothOptions()).reached
    assert judged([line(reasons=("late",))], BothOptions()).reasons == ["plain: late"]


def test_what_brokers_could_still_take_is_less_by_what_they_have() -> None:
    traffic = Traffic(seconds=10.0)
    found = line().found
    some, more = (
        capacity_left(replace(found, parts=[replace(PART, messages=count), *found.parts]), traffic)
        for count in (10_000, 30_000)
    )
    assert some - more == pytest.approx(2_000)
    assert more > 10_000


def test_the_table_names_links_bucket_and_what_they_are_made_of() -> None:
    lines = [line(), line(EMULATED, to_p50_ms=4.5, from_p50_ms=4.5, p50_ms=9.3)]
    options = BothOptions(seconds=3.0)
    text = markdown(lines, judged(lines, options), options.traffic)
    assert "r = 2,200, b = 27; one run of 3 s each; seed 1" in text
    assert "\n| 2 to 2.5 ms late, 0.1 % lost | 10 | 9.3 | 4 |" in text
    assert "| 0.01 | 4 of 2,000 | 87,654 |" in text
    assert "plain: no rate limit; 2 to 2.5 ms late" in text
    assert text.endswith("testbed: reached.")
